package bindings

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// followAgain is how long to wait before a watch that ended is started anew.
const followAgain = 100 * time.Millisecond

// key addresses a binding.
type key struct {
	cluster logicalcluster.Name
	name    string
}

// observed is what an object says that is news for the index.
type observed struct {
	key
	version     uint64
	terminating bool
	state       State
	resources   []Resource
}

// observe reads a binding. What its status lists is bound, in whatever phase it is and whether or not its export is
// still there (contract 4.8).
func observe(object *apisv1alpha2.APIBinding) (observed, error) {
	o := observed{
		key:         key{cluster: logicalcluster.Of(object), name: object.Name},
		terminating: object.DeletionTimestamp != nil,
		state:       stateOf(object),
		resources:   make([]Resource, 0, len(object.Status.BoundResources)),
	}
	var err error
	if o.version, err = strconv.ParseUint(object.ResourceVersion, 10, 64); err != nil {
		return o, fmt.Errorf("binding %s of %s: %w", o.name, o.cluster, err)
	}
	export := Export{}
	if object.Spec.Reference.Export != nil {
		export.Name = object.Spec.Reference.Export.Name
	}
	if name := object.Status.APIExportClusterName; name != "" {
		if export.Cluster, err = logicalcluster.ParseName(name); err != nil {
			return o, fmt.Errorf("binding %s of %s: the cluster of its export: %w", o.name, o.cluster, err)
		}
	}
	for _, bound := range object.Status.BoundResources {
		o.resources = append(o.resources, Resource{
			GroupResource: schema.GroupResource{Group: bound.Group, Resource: bound.Resource},
			Export:        export,
			Identity:      bound.Schema.IdentityHash,
			Schema:        bound.Schema.Name,
			SchemaUID:     types.UID(bound.Schema.UID),
			Virtual:       len(bound.StorageVersions) == 0, // what is stored is stored in some version (contract 4.7)
		})
	}
	return o, nil
}

// Run follows all bindings until the context ends.
func (i *Index) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := i.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("The watch of all bindings ended, starting it again", "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// WaitForSync returns when every binding that existed at the start is known.
func (i *Index) WaitForSync(ctx context.Context) error {
	select {
	case <-i.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow runs one watch to its end.
func (i *Index) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := i.reader.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	found := sets.New[key]() // what exists, until all of it was told
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		accessor, err := meta.Accessor(event.Object)
		if err != nil {
			return err
		}
		version, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
		if err != nil {
			return err
		}
		k := key{logicalcluster.Of(accessor), accessor.GetName()}
		switch event.Type {
		case watch.Bookmark:
			if found != nil {
				i.removeOthers(found, version)
				found = nil
				i.once.Do(func() { close(i.synced) })
			}
		case watch.Deleted:
			i.remove(k, version)
		default:
			i.take(ctx, event.Object)
		}
		if found != nil { // what exists comes in the order of keys, not of versions
			found.Insert(k)
			continue
		}
		i.saw(version)
	}
	return nil
}

// take takes in one object. One that makes no sense changes nothing: others must not wait for it to be mended.
func (i *Index) take(ctx context.Context, object any) {
	typed, ok := object.(*apisv1alpha2.APIBinding)
	if !ok {
		klog.FromContext(ctx).Error(nil, "A watch of bindings brought something else", "type", fmt.Sprintf("%T", object))
		return
	}
	o, err := observe(typed)
	if err != nil {
		klog.FromContext(ctx).Error(err, "A binding cannot be read")
		return
	}
	i.update(o, false)
}

// saw remembers up to where the watch has come.
func (i *Index) saw(version uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen = max(i.seen, version)
}

// removeOthers forgets what was deleted while no watch was there to tell.
func (i *Index) removeOthers(found sets.Set[key], version uint64) {
	var gone []key
	i.mu.RLock()
	for cluster, of := range i.clusters {
		for _, b := range of {
			if k := (key{cluster, b.name}); !found.Has(k) {
				gone = append(gone, k)
			}
		}
	}
	i.mu.RUnlock()
	for _, k := range gone {
		i.remove(k, version)
	}
}
