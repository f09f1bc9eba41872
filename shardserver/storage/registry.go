package storage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Store is the part of a resource's REST storage that the server itself uses: reads by context. Stock registries
// (genericregistry.Store and types that embed it) implement it.
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
	// Deletable is whether clients may delete its objects, hence whether draining a logical cluster must delete them.
	Deletable bool
}

// Segment returns the part of the resource's keys between its name and the logical cluster, which distinguishes several
// storages of the same name: an identity, a fixed word for all definitions, or nothing for a storage that is unique.
func (r *Resource) Segment() string {
	_, resource, _ := strings.Cut(strings.Trim(r.Prefix, "/"), "/")
	_, segment, _ := strings.Cut(resource, "/")
	return segment
}

// identityLength is the length of identities, which are SHA-256 hashes in hexadecimal.
const identityLength = 64

// Identity returns the identity in the storage prefix of the resource, or an empty string if there is none.
func (r *Resource) Identity() string {
	if segment := r.Segment(); len(segment) == identityLength {
		return segment
	}
	return ""
}

// Registry contains every resource that is stored on this shard: compiled-in ones, which are added while APIs are
// installed, and those of definitions in logical clusters, which are added and removed at any time. Authorizers,
// admission and controllers read it. Its size depends on the set of APIs, not on workspaces.
type Registry struct {
	mu        sync.RWMutex
	resources map[schema.GroupResource]*Resource
	// custom are the storages of custom resources, by prefix: one group-resource may have several, distinguished by the
	// identity in the prefix.
	custom          map[string]*Resource
	changed         chan struct{}
	customResources CustomResourceResolver
	isVisible       func(context.Context, schema.GroupResource) bool
	// remoteStore reads replicas of other shards.
	remoteStore RemoteStore
	locality    Locality
	// moves reports which logical clusters move.
	moves Moves
}

// CustomResourceResolver resolves the custom resources of the context's logical cluster.
type CustomResourceResolver interface {
	// List returns the custom resources that the logical cluster serves now, each with a version and kind that it serves
	// there. Their Store is shared by all logical clusters.
	List(ctx context.Context) ([]*Resource, error)
	// Get returns one of them, or nil if the logical cluster does not serve it.
	Get(ctx context.Context, gr schema.GroupResource) (*Resource, error)
}

// NewRegistry returns an empty registry.
func NewRegistry(locality Locality) *Registry {
	return &Registry{
		resources: map[schema.GroupResource]*Resource{}, custom: map[string]*Resource{}, changed: make(chan struct{}),
		remoteStore: emptyRemoteStore{}, locality: locality,
	}
}

// Add adds a compiled-in resource. The first version of a group-resource is kept.
func (r *Registry) Add(resource *Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gr := resource.GVR.GroupResource()
	if _, known := r.resources[gr]; !known {
		r.resources[gr] = resource
		r.notifyChanged()
	}
}

// AddCustom adds the shared storage of a custom resource; RemoveCustom removes it. Its GVR and Kind are those of one
// definition: a logical cluster may serve another version and kind, which In and For return.
func (r *Registry) AddCustom(resource *Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.custom[resource.Prefix] = resource
	r.notifyChanged()
}

// RemoveCustom removes the shared storage of a prefix.
func (r *Registry) RemoveCustom(prefix string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.custom[prefix]; known {
		delete(r.custom, prefix)
		r.notifyChanged()
	}
}

// notifyChanged notifies the callers of Changed. Callers must hold the lock.
func (r *Registry) notifyChanged() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of the set of resources. Call it before reading the set.
func (r *Registry) Changed() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.changed
}

// SetCustomResourceResolver sets the resolver of definitions in logical clusters. By default there are none.
func (r *Registry) SetCustomResourceResolver(resolver CustomResourceResolver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.customResources = resolver
}

// SetVisibilityFunc sets the function that reports which logical clusters serve a compiled-in resource. By default all do.
func (r *Registry) SetVisibilityFunc(isVisible func(context.Context, schema.GroupResource) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isVisible = isVisible
}

// Get returns a compiled-in resource. It returns an error that is not an API status if the resource is not installed
// (yet).
func (r *Registry) Get(gr schema.GroupResource) (*Resource, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if resource, ok := r.resources[gr]; ok {
		return resource, nil
	}
	return nil, fmt.Errorf("resource %q is not stored on this shard", gr)
}

// Resolve returns the resource of a name that the context's logical cluster serves, compiled in or custom, or nil.
func (r *Registry) Resolve(ctx context.Context, gr schema.GroupResource) (*Resource, error) {
	r.mu.RLock()
	resource, resolver, isVisible := r.resources[gr], r.customResources, r.isVisible
	r.mu.RUnlock()
	if resource != nil && (isVisible == nil || isVisible(ctx, gr)) {
		return resource, nil
	}
	if resolver == nil {
		return nil, nil
	}
	return resolver.Get(ctx, gr)
}

// ResolveKind is For by kind. The version of the kind is ignored: a logical cluster serves a kind of a group once.
func (r *Registry) ResolveKind(ctx context.Context, kind schema.GroupKind) (*Resource, error) {
	all, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, resource := range all {
		if resource.Kind.GroupKind() == kind {
			return resource, nil
		}
	}
	return nil, nil
}

// List returns every stored resource that the context's logical cluster serves, ordered by group and name.
func (r *Registry) List(ctx context.Context) ([]*Resource, error) {
	r.mu.RLock()
	resolver, isVisible := r.customResources, r.isVisible
	all := make([]*Resource, 0, len(r.resources))
	for _, resource := range r.resources {
		all = append(all, resource)
	}
	r.mu.RUnlock()
	if isVisible != nil { // called without the lock, because it may call the registry
		all = slices.DeleteFunc(all, func(resource *Resource) bool { return !isVisible(ctx, resource.GVR.GroupResource()) })
	}
	if resolver != nil {
		custom, err := resolver.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("finding what the definitions of the logical cluster add: %w", err)
		}
		all = append(all, custom...)
	}
	sortResources(all)
	return all, nil
}

// All returns all compiled-in resources, ordered by group and name.
func (r *Registry) All() []*Resource {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return sorted(r.resources)
}

// AllStorages returns every storage of the shard, compiled in and custom, of all logical clusters, ordered by group, name
// and prefix.
func (r *Registry) AllStorages() []*Resource {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := append(sorted(r.resources), sorted(r.custom)...)
	sortResources(all)
	return all
}

func sorted[K comparable](resources map[K]*Resource) []*Resource {
	all := make([]*Resource, 0, len(resources))
	for _, resource := range resources {
		all = append(all, resource)
	}
	sortResources(all)
	return all
}

func sortResources(all []*Resource) {
	slices.SortFunc(all, func(a, b *Resource) int {
		return cmp.Or(cmp.Compare(a.GVR.Group, b.GVR.Group), cmp.Compare(a.GVR.Resource, b.GVR.Resource), cmp.Compare(a.Prefix, b.Prefix))
	})
}
