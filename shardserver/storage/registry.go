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

// Segment returns what stands in the keys of the resource between its name and the logical cluster, to tell several
// storages of one name apart: an identity, a word for all definitions, or nothing for what only is there once.
func (r *Resource) Segment() string {
	_, resource, _ := strings.Cut(strings.Trim(r.Prefix, "/"), "/")
	_, segment, _ := strings.Cut(resource, "/")
	return segment
}

// identityLength is that of every identity, a SHA-256 in hexadecimal.
const identityLength = 64

// Identity returns the identity that the objects of the resource are stored with, or nothing if it has none.
func (r *Resource) Identity() string {
	if segment := r.Segment(); len(segment) == identityLength {
		return segment
	}
	return ""
}

// Registry knows every resource that is stored on this shard: those compiled in, which are added while APIs are
// installed, and those that definitions in logical clusters bring, which come and go. It is read by authorizers,
// admission and controllers. Its size follows the set of APIs, never the workspaces.
type Registry struct {
	mu        sync.RWMutex
	resources map[schema.GroupResource]*Resource
	// custom are the storages of resources that definitions bring, by prefix: one group-resource may have several, told
	// apart by the identity in the prefix.
	custom  map[string]*Resource
	changed chan struct{}
	local   Local
	visible func(context.Context, schema.GroupResource) bool
	// elsewhere knows what other shards have.
	elsewhere Elsewhere
}

// Local tells what definitions add to the logical cluster of a context.
type Local interface {
	// In returns the custom resources that the cluster serves now, each in a version and of the kind that it serves
	// there. Their Store is the one shared by all clusters.
	In(ctx context.Context) ([]*Resource, error)
	// Get returns one of them, or nil if the cluster does not serve it.
	Get(ctx context.Context, gr schema.GroupResource) (*Resource, error)
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{resources: map[schema.GroupResource]*Resource{}, custom: map[string]*Resource{}, changed: make(chan struct{}), elsewhere: nowhere{}}
}

// Add makes a compiled-in resource known. The first version added of a group-resource stays.
func (r *Registry) Add(resource *Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gr := resource.GVR.GroupResource()
	if _, known := r.resources[gr]; !known {
		r.resources[gr] = resource
		r.change()
	}
}

// AddCustom makes the shared storage of a custom resource known, RemoveCustom forgets it. Its GVR and Kind are those
// of some definition: what one logical cluster serves may have another version and kind, which In and For tell.
func (r *Registry) AddCustom(resource *Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.custom[resource.Prefix] = resource
	r.change()
}

// RemoveCustom forgets the shared storage behind a prefix.
func (r *Registry) RemoveCustom(prefix string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.custom[prefix]; known {
		delete(r.custom, prefix)
		r.change()
	}
}

// change wakes who waits for Changed. The lock is held.
func (r *Registry) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of the set of resources. Take it before reading the set.
func (r *Registry) Changed() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.changed
}

// SetLocal installs what knows the definitions of logical clusters. Until then there are none.
func (r *Registry) SetLocal(local Local) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.local = local
}

// SetVisible installs the rule that says which logical clusters show a compiled-in resource. Without one all do.
func (r *Registry) SetVisible(visible func(context.Context, schema.GroupResource) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.visible = visible
}

// Get returns a compiled-in resource. It fails with a plain error while the resource is not installed (yet).
func (r *Registry) Get(gr schema.GroupResource) (*Resource, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if resource, ok := r.resources[gr]; ok {
		return resource, nil
	}
	return nil, fmt.Errorf("resource %q is not stored on this shard", gr)
}

// For returns the resource that the context's logical cluster serves under a name, compiled in or custom, or nil.
func (r *Registry) For(ctx context.Context, gr schema.GroupResource) (*Resource, error) {
	r.mu.RLock()
	resource, local, visible := r.resources[gr], r.local, r.visible
	r.mu.RUnlock()
	if resource != nil && (visible == nil || visible(ctx, gr)) {
		return resource, nil
	}
	if local == nil {
		return nil, nil
	}
	return local.Get(ctx, gr)
}

// ForKind is For by kind. The version of the kind does not matter: a cluster serves a kind of a group once.
func (r *Registry) ForKind(ctx context.Context, kind schema.GroupKind) (*Resource, error) {
	all, err := r.In(ctx)
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

// In returns every stored resource that the context's logical cluster serves, ordered by group and name.
func (r *Registry) In(ctx context.Context) ([]*Resource, error) {
	r.mu.RLock()
	local, visible := r.local, r.visible
	all := make([]*Resource, 0, len(r.resources))
	for _, resource := range r.resources {
		all = append(all, resource)
	}
	r.mu.RUnlock()
	if visible != nil { // asked without the lock, for it may ask back
		all = slices.DeleteFunc(all, func(resource *Resource) bool { return !visible(ctx, resource.GVR.GroupResource()) })
	}
	if local != nil {
		custom, err := local.In(ctx)
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

// Stored returns every storage of the shard, compiled in and custom, whichever logical clusters use it, ordered by
// group, name and prefix.
func (r *Registry) Stored() []*Resource {
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
