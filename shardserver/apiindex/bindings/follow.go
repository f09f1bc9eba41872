package bindings

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

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

// Run follows all bindings until the context ends. It is called once.
func (i *Index) Run(ctx context.Context) { i.following.Run(ctx) }

// WaitForSync returns when every binding that existed at the start is known.
func (i *Index) WaitForSync(ctx context.Context) error { return i.following.WaitForSync(ctx) }

// follower takes into an index what a watch brings.
type follower struct {
	*Index
	// found is what exists, until all of it was told.
	found sets.Set[key]
}

func (f *follower) Begin() { f.found = sets.New[key]() }

func (*follower) End() {}

// Take takes in one object. One that makes no sense changes nothing: others must not wait for it to be mended.
func (f *follower) Take(ctx context.Context, object *apisv1alpha2.APIBinding, deleted bool) error {
	o, err := observe(object)
	if f.found != nil {
		f.found.Insert(o.key)
	}
	switch {
	case deleted:
		f.remove(o.key, o.version)
	case err != nil:
		klog.FromContext(ctx).Error(err, "A binding cannot be read")
	default:
		f.update(o, false)
	}
	return nil
}

func (f *follower) Complete(version string) {
	if at, err := strconv.ParseUint(version, 10, 64); err == nil {
		f.removeOthers(f.found, at)
	}
	f.found = nil
}

func (f *follower) Saw(version string) {
	if at, err := strconv.ParseUint(version, 10, 64); err == nil {
		f.saw(at)
	}
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
