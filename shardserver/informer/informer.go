// Package informer delivers the objects of a resource, in all logical clusters, to event handlers: first all that
// exist, then changes, and all again after a watch ended and events may have been missed.
//
// It differs from client-go's informers in one point: there is no local store. Objects come from the shard's watch
// cache (storage.Reader) or from replicas of other shards, and are shared with them. Handlers keep what they derive
// from them.
//
// Handlers must not be implemented here.
package informer

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// WatchFunc starts a watch with initial events: everything that exists as Added, then a Bookmark, then changes
// (storage.Reader.WatchAll, for example). The watch may end at any time; the informer then starts another one.
type WatchFunc func(context.Context) (watch.Interface, error)

// EventHandler handles the events of an Informer, which calls one function at a time. Functions that are nil are
// skipped. They must return quickly, must not modify objects and should not retain them. An error ends the watch: the
// informer lists everything again after a backoff.
type EventHandler[T any] struct {
	// OnReplace is called with all objects that exist at a resource version: at the start, and whenever events may have
	// been missed. Objects that are not in the list do not exist. If the list contains objects of other shards, the
	// resource version is still that of this shard.
	OnReplace func(ctx context.Context, objects []T, resourceVersion string) error
	// OnAdd, OnUpdate and OnDelete are called for each change after OnReplace. A deleted object has its last state and
	// the resource version of the deletion.
	OnAdd    func(ctx context.Context, object T) error
	OnUpdate func(ctx context.Context, object T) error
	OnDelete func(ctx context.Context, object T) error
	// OnBookmark is called with a resource version up to which all changes were delivered.
	OnBookmark func(resourceVersion string)
	// OnDisconnect is called when the watch ended: changes are missed until the next OnReplace has returned. Handlers
	// that fail closed are not synced during this time.
	OnDisconnect func()
	// OnStop is called when Run ends. No other call follows.
	OnStop func()
}

// ForEach returns an OnReplace that calls a function with each object, for handlers that keep no objects or whose
// OnDisconnect drops them.
func ForEach[T any](fn func(context.Context, T) error) func(context.Context, []T, string) error {
	return func(ctx context.Context, objects []T, _ string) error {
		for _, object := range objects {
			if err := fn(ctx, object); err != nil {
				return err
			}
		}
		return nil
	}
}

// Informer delivers the events of one resource to its handlers.
type Informer[T any] struct {
	resource schema.GroupResource
	watch    WatchFunc
	handlers []EventHandler[T]
	once     sync.Once
	synced   chan struct{}
}

// New returns an informer of a resource.
func New[T any](resource schema.GroupResource, watch WatchFunc) *Informer[T] {
	return &Informer[T]{resource: resource, watch: watch, synced: make(chan struct{})}
}

// NewWithHandler returns an informer with one handler.
func NewWithHandler[T any](resource schema.GroupResource, watch WatchFunc, handler EventHandler[T]) *Informer[T] {
	i := New[T](resource, watch)
	i.AddEventHandler(handler)
	return i
}

// AddEventHandler adds a handler. It must be called before Run.
func (i *Informer[T]) AddEventHandler(handler EventHandler[T]) {
	i.handlers = append(i.handlers, handler)
}

// Run delivers events until the context ends. It must be called once.
func (i *Informer[T]) Run(ctx context.Context) {
	defer i.stop()
	backoff := newBackoff()
	for ctx.Err() == nil {
		replaced, err := i.listAndWatch(ctx)
		if ctx.Err() != nil {
			return
		}
		if replaced {
			backoff = newBackoff()
		}
		delay := backoff.Step()
		watchRestarts.WithLabelValues(i.resource.String()).Inc()
		klog.FromContext(ctx).V(2).Info("Watch ended, restarting", "resource", i.resource, "delay", delay, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 2 * time.Second}
}

// HasSynced reports whether every handler has handled all objects that existed at the start.
func (i *Informer[T]) HasSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// WaitForSync returns nil when HasSynced returns true, or the context's error.
func (i *Informer[T]) WaitForSync(ctx context.Context) error {
	select {
	case <-i.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listAndWatch runs one watch until it ends, and returns whether all handlers have handled the initial objects.
func (i *Informer[T]) listAndWatch(ctx context.Context) (replaced bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := i.watch(ctx)
	if err != nil {
		return false, err
	}
	defer stream.Stop()
	if err := i.replace(ctx, stream); err != nil {
		return false, err
	}
	defer i.disconnect()
	i.once.Do(func() { close(i.synced) })
	for event := range stream.ResultChan() {
		if err := i.handle(ctx, event); err != nil {
			return true, err
		}
	}
	return true, nil
}

// replace passes the initial events of a watch to the handlers.
func (i *Informer[T]) replace(ctx context.Context, stream watch.Interface) error {
	objects, resourceVersion, err := initialEvents[T](stream)
	if err != nil {
		return fmt.Errorf("listing %s: %w", i.resource, err)
	}
	for _, handler := range i.handlers {
		if handler.OnReplace == nil {
			continue
		}
		if err := handler.OnReplace(ctx, objects, resourceVersion); err != nil {
			i.disconnect()
			return err
		}
	}
	return nil
}

func (i *Informer[T]) disconnect() {
	for _, handler := range i.handlers {
		if handler.OnDisconnect != nil {
			handler.OnDisconnect()
		}
	}
}

func (i *Informer[T]) stop() {
	watchRestarts.Delete(map[string]string{"resource": i.resource.String()})
	for _, handler := range i.handlers {
		if handler.OnStop != nil {
			handler.OnStop()
		}
	}
}

func (i *Informer[T]) handle(ctx context.Context, event watch.Event) error {
	switch event.Type {
	case watch.Error:
		return apierrors.FromObject(event.Object)
	case watch.Bookmark:
		return i.handleBookmark(event)
	}
	object, ok := event.Object.(T)
	if !ok {
		return fmt.Errorf("watching %s: unexpected type %T", i.resource, event.Object)
	}
	for _, handler := range i.handlers {
		handle := handler.OnUpdate
		switch event.Type {
		case watch.Added:
			handle = handler.OnAdd
		case watch.Deleted:
			handle = handler.OnDelete
		}
		if handle == nil {
			continue
		}
		if err := handle(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func (i *Informer[T]) handleBookmark(event watch.Event) error {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("watching %s: %w", i.resource, err)
	}
	for _, handler := range i.handlers {
		if handler.OnBookmark != nil {
			handler.OnBookmark(object.GetResourceVersion())
		}
	}
	return nil
}
