// Package workspaceevents writes events of objects in workspaces, for whoever has a permission claim for events.
package workspaceevents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// eventQueue bounds the events of an endpoint that are not written yet. More are dropped: an event is no reason to delay objects.
	eventQueue = 1000
	// eventTimeout bounds the time for writing an event.
	eventTimeout = 10 * time.Second
)

// Client is a client of one workspace.
type Client interface {
	client.Reader
	client.Writer
}

// Recorder writes events beside the workers. Equal events of an object are one object with a counter.
type Recorder struct {
	component string
	labels    map[string]string
	queue     chan queued
}

type queued struct {
	workspace Client
	event     *corev1.Event
}

// New returns a recorder of a component, which writes nothing before Run. All its events have the given labels.
func New(component string, labels map[string]string) *Recorder {
	return &Recorder{component: component, labels: labels, queue: make(chan queued, eventQueue)}
}

// Event records an event, or drops it where too many wait.
func (e *Recorder) Event(ctx context.Context, workspace Client, object *unstructured.Unstructured, eventType, reason, message string) {
	select {
	case e.queue <- queued{workspace, e.newEvent(object, eventType, reason, message)}:
	default:
		log.FromContext(ctx).V(1).Info("Dropped an event, too many wait to be written", "reason", reason)
	}
}

func (e *Recorder) newEvent(object *unstructured.Unstructured, eventType, reason, message string) *corev1.Event {
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
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "." + hex.EncodeToString(hash[:])[:hashLength], Labels: maps.Clone(e.labels)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		},
		Type: eventType, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: e.component},
	}
}

// Run writes events until the context ends.
func (e *Recorder) Run(ctx context.Context) {
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

func writeEvent(ctx context.Context, workspace Client, event *corev1.Event) error {
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
