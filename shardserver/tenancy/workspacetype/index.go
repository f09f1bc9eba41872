package workspacetype

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Index knows the workspace types of all shards by the path they are referred to by: a path cannot be walked where it
// leads through logical clusters of other shards. Its size follows the number of types. It is safe for concurrent use.
type Index struct {
	following *storage.Following[*tenancyv1alpha1.WorkspaceType]

	mu    sync.RWMutex
	paths map[Reference]sets.Set[logicalcluster.Name]
	known map[key]logicalcluster.Path
}

// NewIndex returns an index that knows nothing until Run has begun.
func NewIndex(registry *storage.Registry) *Index {
	i := newIndex()
	reader := storage.NewReader[*tenancyv1alpha1.WorkspaceType](registry, workspaceTypes).Everywhere()
	i.following = storage.NewFollowing(workspaceTypes, reader.WatchAll, storage.Follower[*tenancyv1alpha1.WorkspaceType](&follower{Index: i}))
	return i
}

func newIndex() *Index {
	return &Index{paths: map[Reference]sets.Set[logicalcluster.Name]{}, known: map[key]logicalcluster.Path{}}
}

// Run follows all types until the context ends. It is called once.
func (i *Index) Run(ctx context.Context) { i.following.Run(ctx) }

// WaitForSync returns when every type that was known at the start is known here.
func (i *Index) WaitForSync(ctx context.Context) error { return i.following.WaitForSync(ctx) }

// ByPath returns the logical clusters that say that a reference leads to a type of theirs, in a fixed order.
func (i *Index) ByPath(reference Reference) []logicalcluster.Name {
	i.mu.RLock()
	defer i.mu.RUnlock()
	found := i.paths[reference].UnsortedList()
	slices.SortFunc(found, func(a, b logicalcluster.Name) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// Size returns how many types are known: what the memory of the index follows.
func (i *Index) Size() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return len(i.known)
}

func (i *Index) take(object *tenancyv1alpha1.WorkspaceType, deleted bool) {
	cluster := logicalcluster.Of(object)
	of := key{cluster, object.Name}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forget(of)
	if deleted {
		return
	}
	path := canonicalPath(object, cluster)
	i.known[of] = path
	reference := Reference{Path: path, Name: object.Name}
	if i.paths[reference] == nil {
		i.paths[reference] = sets.New[logicalcluster.Name]()
	}
	i.paths[reference].Insert(cluster)
}

func (i *Index) forget(of key) {
	path, known := i.known[of]
	if !known {
		return
	}
	delete(i.known, of)
	reference := Reference{Path: path, Name: of.name}
	if i.paths[reference].Delete(of.cluster); len(i.paths[reference]) == 0 {
		delete(i.paths, reference)
	}
}

// follower takes into an index what a watch brings.
type follower struct {
	*Index
	// found is what exists, until all of it was told.
	found sets.Set[key]
}

func (f *follower) Begin() { f.found = sets.New[key]() }

func (f *follower) Take(_ context.Context, object *tenancyv1alpha1.WorkspaceType, deleted bool) error {
	if f.found != nil {
		f.found.Insert(key{logicalcluster.Of(object), object.Name})
	}
	f.take(object, deleted)
	return nil
}

// Complete forgets what was deleted while no watch was there to tell.
func (f *follower) Complete(string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for of := range f.known {
		if !f.found.Has(of) {
			f.forget(of)
		}
	}
	f.found = nil
}

func (*follower) Saw(string) {}

func (*follower) End() {}
