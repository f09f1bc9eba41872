package runtimecluster

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Watches watches the kinds of the objects of instances, and reports the instances whose objects have changed. It runs one watch for each
// kind, and caches no objects.
type Watches struct {
	cluster  *Cluster
	metadata metadata.Interface
	changed  chan instance.Identity

	mu    sync.Mutex
	kinds map[schema.GroupVersionResource]bool // whether the watch has started; bounded by the kinds that Templates use
	start func(schema.GroupVersionResource)    // nil unless Run is running
}

// NewWatches returns Watches. It starts no watch before Run.
func NewWatches(cluster *Cluster, metadata metadata.Interface) *Watches {
	return &Watches{cluster: cluster, metadata: metadata, changed: make(chan instance.Identity), kinds: map[schema.GroupVersionResource]bool{}}
}

// Changed returns the channel of instances whose objects have changed.
func (w *Watches) Changed() <-chan instance.Identity { return w.changed }

// Add starts a watch of a kind, which lasts until the end of Run.
func (w *Watches) Add(gvk schema.GroupVersionKind) error {
	mapping, err := w.cluster.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return fmt.Errorf("watching %s: %w", gvk.GroupKind(), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.kinds[mapping.Resource] {
		w.kinds[mapping.Resource] = w.start != nil
		if w.start != nil {
			w.start(mapping.Resource)
		}
	}
	return nil
}

// Run runs the watches until the context ends.
func (w *Watches) Run(ctx context.Context) {
	var running background.Group
	w.mu.Lock()
	w.start = func(resource schema.GroupVersionResource) { running.Go(func() { w.watch(ctx, resource) }) }
	for resource := range w.kinds {
		w.kinds[resource] = true
		w.start(resource)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.start = nil
	clear(w.kinds)
	w.mu.Unlock()
	running.Wait()
}

func (w *Watches) watch(ctx context.Context, resource schema.GroupVersionResource) {
	selector := labels.SelectorFromSet(labels.Set{managedBy: Owner, w.cluster.label(labelBackend): w.cluster.Backend})
	// Periodic reconciliation of instances covers changes that the watch misses.
	workspaces.NewWatch(w.metadata.Resource(resource), selector.String(), func(object *metav1.PartialObjectMetadata) { w.report(ctx, object) }, func() {}).Run(ctx)
}

func (w *Watches) report(ctx context.Context, object *metav1.PartialObjectMetadata) {
	cluster, err := logicalcluster.ParseName(object.Labels[w.cluster.label(labelTenant)])
	if err != nil || Namespace(cluster) != object.Namespace {
		return
	}
	changed := instance.Identity{Cluster: cluster, Template: object.Annotations[w.cluster.label(labelTemplate)], Name: object.Annotations[w.cluster.label(labelInstance)]}
	select {
	case w.changed <- changed:
	case <-ctx.Done():
	}
}
