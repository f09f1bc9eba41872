package workspacetype

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Index indexes the workspace types of all shards by their path, as paths that lead through logical clusters of other
// shards cannot be resolved on this shard. Its size depends on the number of types. It is safe for concurrent use.
type Index struct {
	informer *informer.Informer[*tenancyv1alpha1.WorkspaceType]

	mu     sync.RWMutex
	paths  map[Reference]sets.Set[logicalcluster.Name]
	pathOf map[key]logicalcluster.Path
}

// NewIndex returns an index that is empty until Run is called.
func NewIndex(registry *storage.Registry) *Index {
	i := newIndex()
	reader := storage.NewReader[*tenancyv1alpha1.WorkspaceType](registry, workspaceTypes).Global()
	update := func(_ context.Context, object *tenancyv1alpha1.WorkspaceType) error { i.update(object); return nil }
	i.informer = informer.NewWithHandler(workspaceTypes, reader.WatchAll, informer.EventHandler[*tenancyv1alpha1.WorkspaceType]{
		OnReplace: func(_ context.Context, objects []*tenancyv1alpha1.WorkspaceType, _ string) error {
			i.replace(objects)
			return nil
		},
		OnAdd:    update,
		OnUpdate: update,
		OnDelete: func(_ context.Context, object *tenancyv1alpha1.WorkspaceType) error { i.delete(object); return nil },
	})
	return i
}

func newIndex() *Index {
	return &Index{paths: map[Reference]sets.Set[logicalcluster.Name]{}, pathOf: map[key]logicalcluster.Path{}}
}

// Run watches all types until the context ends. It must be called once.
func (i *Index) Run(ctx context.Context) { i.informer.Run(ctx) }

// WaitForSync returns when the index has all types that existed at the start.
func (i *Index) WaitForSync(ctx context.Context) error { return i.informer.WaitForSync(ctx) }

// ListByPath returns the logical clusters with a type that is annotated with the path and name of a reference, sorted.
func (i *Index) ListByPath(reference Reference) []logicalcluster.Name {
	i.mu.RLock()
	defer i.mu.RUnlock()
	found := i.paths[reference].UnsortedList()
	slices.SortFunc(found, func(a, b logicalcluster.Name) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// Size returns the number of indexed types.
func (i *Index) Size() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return len(i.pathOf)
}

// replace indexes all types and removes those that no longer exist.
func (i *Index) replace(objects []*tenancyv1alpha1.WorkspaceType) {
	existing := sets.New[key]()
	for _, object := range objects {
		existing.Insert(key{logicalcluster.Of(object), object.Name})
		i.update(object)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for typeKey := range i.pathOf {
		if !existing.Has(typeKey) {
			i.remove(typeKey)
		}
	}
}

func (i *Index) delete(object *tenancyv1alpha1.WorkspaceType) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.remove(key{logicalcluster.Of(object), object.Name})
}

func (i *Index) update(object *tenancyv1alpha1.WorkspaceType) {
	cluster := logicalcluster.Of(object)
	typeKey := key{cluster, object.Name}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.remove(typeKey)
	path := canonicalPath(object, cluster)
	i.pathOf[typeKey] = path
	reference := Reference{Path: path, Name: object.Name}
	if i.paths[reference] == nil {
		i.paths[reference] = sets.New[logicalcluster.Name]()
	}
	i.paths[reference].Insert(cluster)
}

func (i *Index) remove(typeKey key) {
	path, ok := i.pathOf[typeKey]
	if !ok {
		return
	}
	delete(i.pathOf, typeKey)
	reference := Reference{Path: path, Name: typeKey.name}
	if i.paths[reference].Delete(typeKey.cluster); len(i.paths[reference]) == 0 {
		delete(i.paths, reference)
	}
}
