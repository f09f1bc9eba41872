package storage

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Store is what the shard's own parts need of a resource's REST storage: reading by context. Stock registries
// (genericregistry.Store and what embeds it) have it.
type Store interface {
	rest.Storage
	rest.Getter
	rest.Lister
	rest.Watcher
}

// Resource is one stored resource of this shard, in its preferred version.
type Resource struct {
	GVR        schema.GroupVersionResource
	Kind       schema.GroupVersionKind
	Namespaced bool
	// Prefix is the storage prefix of the resource, "/<group or core>/<resource>[/<identity>]".
	Prefix string
	Store  Store
	// Deletable tells whether clients may delete its objects, hence whether draining a logical cluster must.
	Deletable bool
}

// Registry knows every resource that is stored on this shard. It is filled while APIs are installed and read by
// authorizers, admission and controllers afterwards. Its size follows the set of APIs, never the workspaces.
type Registry struct {
	mu        sync.RWMutex
	resources map[schema.GroupResource]*Resource
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{resources: map[schema.GroupResource]*Resource{}}
}

// Add makes a resource known. The first version added of a group-resource stays.
func (r *Registry) Add(resource *Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gr := resource.GVR.GroupResource()
	if _, known := r.resources[gr]; !known {
		r.resources[gr] = resource
	}
}

// Get returns a resource. It fails with a plain error while the resource is not installed (yet).
func (r *Registry) Get(gr schema.GroupResource) (*Resource, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if resource, ok := r.resources[gr]; ok {
		return resource, nil
	}
	return nil, fmt.Errorf("resource %q is not stored on this shard", gr)
}

// All returns all resources, ordered by group and name.
func (r *Registry) All() []*Resource {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]*Resource, 0, len(r.resources))
	for _, resource := range r.resources {
		all = append(all, resource)
	}
	slices.SortFunc(all, func(a, b *Resource) int {
		return cmp.Or(cmp.Compare(a.GVR.Group, b.GVR.Group), cmp.Compare(a.GVR.Resource, b.GVR.Resource))
	})
	return all
}
