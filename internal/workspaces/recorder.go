package workspaces

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxQueued bounds the events of an endpoint that are not written yet, maxQueuedOfWorkspace those of one workspace among them.
	// Further events are dropped, because an event must not delay objects.
	maxQueued, maxQueuedOfWorkspace = 1000, 100
	// writers is how many events of an endpoint are written concurrently, each in another workspace.
	writers = 2
	// eventTimeout bounds the time for writing an event.
	eventTimeout = 2 * time.Second
	// slowWrite is the duration after which a write is so slow, for example because of a webhook of the workspace, that the events of the
	// workspace are dropped for pauseTime: they would delay those of others.
	slowWrite, pauseTime = time.Second, time.Minute
)

// EventClient is a client of one workspace.
type EventClient interface {
	client.Reader
	client.Writer
}

// Recorder writes events concurrently to the workers. Equal events of an object are one object with a counter. It takes turns between
// workspaces.
type Recorder struct {
	component string
	labels    map[string]string
	queue     *fairQueue[*queued, logicalcluster.Name]
	// paused are the workspaces whose events are dropped for a while. Their number is bounded by how many slow workspaces the writers can
	// find in that time.
	paused *cache.Expiring
}

type queued struct {
	cluster   logicalcluster.Name
	workspace EventClient
	event     *corev1.Event
}

// NewRecorder returns a recorder of a component, which writes nothing before Run. All its events have the given labels.
func NewRecorder(component string, labels map[string]string) *Recorder {
	return &Recorder{
		component: component, labels: labels, paused: cache.NewExpiring(),
		queue: newFairQueue("", func(q *queued) logicalcluster.Name { return q.cluster }, 1),
	}
}

// Event records an event, or drops it if too many wait, or if the workspace of the object is slow.
func (r *Recorder) Event(ctx context.Context, workspace EventClient, object *unstructured.Unstructured, eventType, reason, message string) {
	cluster := logicalcluster.Of(object)
	if r.queue.Len() >= maxQueued || r.queue.LenOf(cluster) >= maxQueuedOfWorkspace || r.isPaused(cluster) {
		log.FromContext(ctx).V(1).Info("Dropped an event, too many wait to be written or the workspace is slow", "reason", reason)
		return
	}
	r.queue.Add(&queued{cluster, workspace, r.newEvent(object, eventType, reason, message)})
}

func (r *Recorder) newEvent(object *unstructured.Unstructured, eventType, reason, message string) *corev1.Event {
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
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "." + hex.EncodeToString(hash[:])[:hashLength], Labels: maps.Clone(r.labels)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		},
		Type: eventType, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: r.component},
	}
}

// Run writes events until the context ends. It can be called once.
func (r *Recorder) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, r.queue.ShutDown)()
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for r.writeNext(ctx) {
			}
		})
	}
	running.Wait()
}

// writeNext writes one event, and reports whether others may be waiting.
func (r *Recorder) writeNext(ctx context.Context) bool {
	next, ended := r.queue.Get()
	if ended {
		return false
	}
	defer r.queue.Done(next)
	if ctx.Err() != nil || r.isPaused(next.cluster) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	started := time.Now()
	if err := writeEvent(ctx, next.workspace, next.event); err != nil {
		log.FromContext(ctx).V(1).Info("Failed to write an event", "reason", next.event.Reason, "err", err)
	}
	if time.Since(started) >= slowWrite && !next.cluster.Empty() {
		r.paused.Set(next.cluster, nil, pauseTime)
	}
	return true
}

func (r *Recorder) isPaused(cluster logicalcluster.Name) bool {
	_, paused := r.paused.Get(cluster)
	return paused
}

func writeEvent(ctx context.Context, workspace EventClient, event *corev1.Event) error {
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
