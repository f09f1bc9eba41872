package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// feed is one place that events of a resource come from.
type feed struct {
	resource schema.GroupResource
	// elsewhere says that these are objects of other shards.
	elsewhere bool
	// of and input tell whose own stream it is; nil for what controllers share.
	of    *running
	input int
}

// feeds returns where the events of an input come from.
func (r *running) feeds(at int) []feed {
	input := r.Inputs[at]
	if input.Stream != nil {
		return []feed{{resource: input.Resource, of: r, input: at}}
	}
	var feeds []feed
	if !storage.OnlyElsewhere(input.Resource) {
		feeds = append(feeds, feed{resource: input.Resource})
	}
	if input.Everywhere {
		feeds = append(feeds, feed{resource: input.Resource, elsewhere: true})
	}
	return feeds
}

// watch starts the feed.
func (f feed) watch(ctx context.Context, registry *storage.Registry) (watch.Interface, error) {
	switch {
	case f.of != nil:
		return f.of.Inputs[f.input].Stream(ctx)
	case f.elsewhere:
		return registry.WatchElsewhere(ctx, f.resource)
	}
	resource, err := registry.Get(f.resource)
	if err != nil {
		return nil, err
	}
	return storage.WatchAll(ctx, resource)
}

// list calls a function with everything that the feed has now. What is not installed has nothing, and its own source
// reports the error.
func (f feed) list(ctx context.Context, registry *storage.Registry, each func(runtime.Object) error) error {
	ctx, cancel := context.WithCancel(logicalcluster.With(ctx, logicalcluster.Wildcard))
	defer cancel()
	switch {
	case f.of != nil:
		stream, err := f.of.Inputs[f.input].Stream(ctx)
		if err != nil {
			return err
		}
		defer stream.Stop()
		for event := range stream.ResultChan() {
			if event.Type != watch.Added {
				return nil
			}
			_ = each(event.Object)
		}
		return nil
	case f.elsewhere:
		objects, err := registry.ListElsewhere(ctx, f.resource, logicalcluster.Wildcard)
		for _, obj := range objects {
			_ = each(obj)
		}
		return err
	}
	resource, err := registry.Get(f.resource)
	if err != nil {
		return nil
	}
	list, err := resource.Store.List(ctx, &internalversion.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	return meta.EachListItem(list, each)
}

// EachKey calls a function with the keys of everything that there is now for the input.
func (i Input) EachKey(ctx context.Context, registry *storage.Registry, do func(Key)) error {
	alone := &running{Controller: Controller{Inputs: []Input{i}}}
	for _, from := range alone.feeds(0) {
		err := from.list(ctx, registry, func(obj runtime.Object) error {
			for _, key := range i.Keys(watch.Event{Type: watch.Added, Object: obj}) {
				do(key)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("listing %s: %w", i.Resource, err)
		}
	}
	return nil
}
