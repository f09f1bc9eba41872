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

	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// merged reads several storages of one resource as if they were one. They share the revisions of etcd, so that a
// version of one means something in all.
type merged []clusterstorage.Store

// NewList implements rest.Lister.
func (m merged) NewList() runtime.Object { return &internalversion.List{} }

// ConvertToTable implements rest.Lister with the columns that any object has.
func (m merged) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return m[0].ConvertToTable(ctx, obj, options)
}

// List implements rest.Lister. The version of the list is that of its oldest part: a watch from there may repeat what
// the others had already, and misses nothing. There are no pages, as in any list from a watch cache.
func (m merged) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	if options != nil && options.Continue != "" {
		return nil, apierrors.NewBadRequest("a list of several storages has no continuation")
	}
	whole := internalversion.ListOptions{}
	if options != nil {
		whole = *options
	}
	whole.Limit = 0
	all := &internalversion.List{}
	var oldest uint64
	for i, store := range m {
		part, err := store.List(ctx, &whole)
		if err != nil {
			return nil, err
		}
		list, err := meta.ListAccessor(part)
		if err != nil {
			return nil, err
		}
		version, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the version of a list: %w", err)
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
func (m merged) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &mergedWatch{stop: cancel, result: make(chan watch.Event), parts: make([]progress, len(m))}
	var streams []watch.Interface
	for _, store := range m {
		stream, err := store.Watch(ctx, options)
		if err != nil {
			cancel()
			for _, open := range streams {
				open.Stop()
			}
			return nil, err
		}
		streams = append(streams, stream)
	}
	w.run(ctx, streams)
	return w, nil
}

// mergedWatch hands on the events of several watches.
type mergedWatch struct {
	stop   context.CancelFunc
	result chan watch.Event

	mu    sync.Mutex
	parts []progress
	// told is the version of the last bookmark, begun says that the one behind all that exists was sent.
	told  uint64
	begun bool
}

// progress is how far one part has come: up to a version, and over all that existed when it began.
type progress struct {
	version uint64
	listed  bool
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
				if !w.hand(ctx, i, event) {
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

// hand passes on an event of a part, or what it means for all parts together. It returns false when nothing can follow.
func (w *mergedWatch) hand(ctx context.Context, part int, event watch.Event) bool {
	if envelope, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = envelope.GetObject()
	}
	w.mu.Lock() // until it is taken, so that no bookmark overtakes an event
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
		at := &w.parts[part]
		at.version = max(at.version, version)
		if event.Type == watch.Bookmark {
			at.listed = at.listed || accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] != ""
			bookmark := w.bookmark()
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

// bookmark returns what can be said of all parts, or nil if that is nothing new.
func (w *mergedWatch) bookmark() *metav1.PartialObjectMetadata {
	oldest := w.parts[0].version
	some, all := false, true
	for _, part := range w.parts {
		oldest, some, all = min(oldest, part.version), some || part.listed, all && part.listed
	}
	if (some && !all) || oldest == 0 || (oldest <= w.told && (w.begun || !all)) {
		return nil
	}
	bookmark := &metav1.PartialObjectMetadata{}
	bookmark.ResourceVersion = strconv.FormatUint(oldest, 10)
	if all && !w.begun {
		bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	w.told, w.begun = oldest, w.begun || all
	return bookmark
}
