package crdstorage

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// mergedStores reads several storages of one resource as one. They share the revisions of etcd, so resource versions are
// comparable.
type mergedStores []clusterstorage.Store

// NewList implements rest.Lister.
func (m mergedStores) NewList() runtime.Object { return &internalversion.List{} }

// ConvertToTable implements rest.Lister with the default columns.
func (m mergedStores) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return m[0].ConvertToTable(ctx, obj, options)
}

// List implements rest.Lister. The resource version of the list is the lowest one of its parts: a watch from there may
// repeat events of other parts and misses none. The list is not paginated.
func (m mergedStores) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	if options != nil && options.Continue != "" {
		return nil, apierrors.NewBadRequest("a list of several storages has no continuation")
	}
	unpaged := internalversion.ListOptions{}
	if options != nil {
		unpaged = *options
	}
	unpaged.Limit = 0
	all := &internalversion.List{}
	var oldest uint64
	for i, store := range m {
		part, err := store.List(ctx, &unpaged)
		if err != nil {
			return nil, err
		}
		list, err := meta.ListAccessor(part)
		if err != nil {
			return nil, err
		}
		version, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parsing the resource version of a list: %w", err)
		}
		if oldest = min(oldest, version); i == 0 {
			oldest = version
		}
		items, err := meta.ExtractList(part)
		if err != nil {
			return nil, err
		}
		all.Items = append(all.Items, items...)
	}
	all.ResourceVersion = strconv.FormatUint(oldest, 10)
	return all, nil
}

// Watch implements rest.Watcher. It ends when any part does.
func (m mergedStores) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	cluster, isSingle := logicalcluster.From(ctx)
	w := &mergedWatch{
		stop: cancel, result: make(chan watch.Event), parts: make([]watchProgress, len(m)),
		isWildcard: !isSingle || cluster.IsWildcard(),
	}
	var streams []watch.Interface
	for _, store := range m {
		stream, err := store.Watch(ctx, options)
		if err != nil {
			cancel()
			for _, opened := range streams {
				opened.Stop()
			}
			return nil, err
		}
		streams = append(streams, stream)
	}
	w.run(ctx, streams)
	return w, nil
}

// mergedWatch forwards the events of several watches.
type mergedWatch struct {
	stop   context.CancelFunc
	result chan watch.Event
	// isWildcard is whether the objects are of several logical clusters, whose versions are comparable as revisions only.
	isWildcard bool

	mu    sync.Mutex
	parts []watchProgress
	// bookmarked is the resource version of the last bookmark; listed is set after the one that ends the initial events.
	bookmarked uint64
	synced     bool
}

// watchProgress is the resource version of one part, and whether its initial events are complete.
type watchProgress struct {
	version uint64
	synced  bool
}

// ResultChan implements watch.Interface.
func (w *mergedWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *mergedWatch) Stop() { w.stop() }

func (w *mergedWatch) run(ctx context.Context, streams []watch.Interface) {
	var parts sync.WaitGroup
	for i, stream := range streams {
		parts.Go(func() {
			defer w.stop()
			defer stream.Stop()
			for event := range stream.ResultChan() {
				if !w.forward(ctx, i, event) {
					return
				}
			}
		})
	}
	go func() {
		parts.Wait()
		close(w.result)
	}()
}

// forward forwards an event of a part, or the bookmark that follows from it. It returns false if the watch must end.
func (w *mergedWatch) forward(ctx context.Context, part int, event watch.Event) bool {
	if envelope, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = envelope.GetObject()
	}
	w.mu.Lock() // held until the event is received, so that no bookmark overtakes an event
	defer w.mu.Unlock()
	if event.Type != watch.Error {
		accessor, err := meta.Accessor(event.Object)
		if err != nil {
			return false
		}
		version, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
		if err != nil {
			return false
		}
		if w.isWildcard {
			version = clusterstorage.Revision(version)
		}
		state := &w.parts[part]
		state.version = max(state.version, version)
		if event.Type == watch.Bookmark {
			state.synced = state.synced || accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] != ""
			bookmark := w.nextBookmark()
			if bookmark == nil {
				return true
			}
			event.Object = bookmark
		}
	}
	select {
	case w.result <- event:
		return event.Type != watch.Error
	case <-ctx.Done():
		return false
	}
}

// nextBookmark returns a bookmark for all parts, or nil if it would not differ from the last one.
func (w *mergedWatch) nextBookmark() *metav1.PartialObjectMetadata {
	oldest := w.parts[0].version
	anySynced, allSynced := false, true
	for _, part := range w.parts {
		oldest, anySynced, allSynced = min(oldest, part.version), anySynced || part.synced, allSynced && part.synced
	}
	if (anySynced && !allSynced) || oldest == 0 || (oldest <= w.bookmarked && (w.synced || !allSynced)) {
		return nil
	}
	bookmark := &metav1.PartialObjectMetadata{}
	bookmark.ResourceVersion = strconv.FormatUint(oldest, 10)
	if allSynced && !w.synced {
		bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	w.bookmarked, w.synced = oldest, w.synced || allSynced
	return bookmark
}
