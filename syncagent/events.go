package syncagent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/syncagent/syncer"
)

const (
	// eventQueue bounds the events of an endpoint that are not written yet. More are dropped: an event is no reason to delay objects.
	eventQueue = 1000
	// eventTimeout bounds the time for writing an event.
	eventTimeout = 10 * time.Second
)

// workspaceEvents writes events of objects of workspaces, beside the workers. Equal events of an object are one object with a counter.
type workspaceEvents struct {
	component string
	queue     chan workspaceEvent
}

type workspaceEvent struct {
	workspace syncer.Client
	event     *corev1.Event
}

func newWorkspaceEvents(component string) *workspaceEvents {
	return &workspaceEvents{component: component, queue: make(chan workspaceEvent, eventQueue)}
}

// Event implements syncer.Events.
func (e *workspaceEvents) Event(ctx context.Context, workspace syncer.Client, object *unstructured.Unstructured, eventType, reason, message string) {
	select {
	case e.queue <- workspaceEvent{workspace, e.newEvent(object, eventType, reason, message)}:
	default:
		log.FromContext(ctx).V(1).Info("Dropped an event, too many wait to be written", "reason", reason)
	}
}

func (e *workspaceEvents) newEvent(object *unstructured.Unstructured, eventType, reason, message string) *corev1.Event {
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	hash := sha256.Sum256([]byte(object.GetKind() + "/" + string(object.GetUID()) + "/" + eventType + "/" + reason + "/" + message))
	name := object.GetName()
	const hashLength = 20
	if limit := 253 - hashLength - 1; len(name) > limit {
		name = name[:limit]
	}
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "." + hex.EncodeToString(hash[:])[:hashLength]},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		},
		Type: eventType, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: e.component},
	}
}

// run writes events until the context ends.
func (e *workspaceEvents) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-e.queue:
			ctx, cancel := context.WithTimeout(ctx, eventTimeout)
			if err := writeEvent(ctx, next.workspace, next.event); err != nil {
				log.FromContext(ctx).V(1).Info("Could not write an event", "reason", next.event.Reason, "error", err.Error())
			}
			cancel()
		}
	}
}

func writeEvent(ctx context.Context, workspace syncer.Client, event *corev1.Event) error {
	err := workspace.Create(ctx, event.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing := &corev1.Event{}
	if err := workspace.Get(ctx, client.ObjectKeyFromObject(event), existing); err != nil {
		return err
	}
	before := existing.DeepCopy()
	existing.Count, existing.LastTimestamp = existing.Count+1, event.LastTimestamp
	return workspace.Patch(ctx, existing, client.MergeFrom(before))
}
