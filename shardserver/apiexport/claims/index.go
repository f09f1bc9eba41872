package claims

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Index indexes the effective claims of logical clusters. It has one entry per binding with effective claims, and equal
// bindings share a claim set. It is safe for concurrent use.
type Index struct {
	reader   *storage.Reader[*apisv1alpha2.APIBinding]
	informer *informer.Informer[*apisv1alpha2.APIBinding]
	bound    *bindings.Index

	mu       sync.RWMutex
	clusters map[logicalcluster.Name][]bindingClaims
	sets     map[contentHash]*claimSet
	// synced means that clusters is complete. Otherwise each call reads the bindings from the watch cache.
	synced bool
}

// bindingClaims is a binding with effective claims.
type bindingClaims struct {
	binding string
	set     *claimSet
}

// NewIndex returns an index. Before Run is called it returns the same results from the watch cache.
func NewIndex(registry *storage.Registry, bound *bindings.Index) *Index {
	i := &Index{
		reader:   storage.NewReader[*apisv1alpha2.APIBinding](registry, apiBindings),
		bound:    bound,
		clusters: map[logicalcluster.Name][]bindingClaims{},
		sets:     map[contentHash]*claimSet{},
	}
	i.informer = informer.NewWithHandler(apiBindings, i.reader.WatchAll, informer.EventHandler[*apisv1alpha2.APIBinding]{
		OnReplace: i.onReplace, OnAdd: i.onUpdate, OnUpdate: i.onUpdate, OnDelete: i.onDelete, OnDisconnect: i.reset,
	})
	return i
}

// Labels returns the claim labels that an object of the context's logical cluster must have, given its labels. In
// logical clusters without claims this is one map lookup.
func (i *Index) Labels(ctx context.Context, gr schema.GroupResource, objectLabels map[string]string) (map[string]string, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return nil, fmt.Errorf("finding the claims on %s: no single logical cluster in the context", gr)
	}
	var desired map[string]string
	all, err := i.listBindingClaims(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if len(all) > 0 {
		identity := func() (string, bool) {
			bound, ok := i.bound.Get(ctx, gr)
			if !ok {
				return "", false
			}
			return bound.Identity, true
		}
		objectLabels := ReplaceClaimLabels(objectLabels, nil) // selectors do not match claim labels
		for _, claims := range all {
			desired = claims.set.addLabels(desired, apiindex.NormalizeResource(gr), identity, objectLabels)
		}
	}
	if gr == apiBindings {
		desired = addReflexiveLabel(desired, objectLabels)
	}
	return desired, nil
}

// listBindingClaims returns the bindings with claims in a logical cluster, from the watch cache while the index is not synced.
func (i *Index) listBindingClaims(ctx context.Context, cluster logicalcluster.Name) ([]bindingClaims, error) {
	i.mu.RLock()
	all, synced := i.clusters[cluster], i.synced
	i.mu.RUnlock()
	if synced {
		return all, nil
	}
	objects, err := i.reader.List(ctx, "", nil)
	if err != nil {
		return nil, fmt.Errorf("reading the claims of the logical cluster: %w", err)
	}
	all = nil
	for _, object := range objects {
		hash, err := hashClaims(object)
		if err != nil {
			return nil, err
		}
		if hash != (contentHash{}) {
			all = append(all, bindingClaims{object.Name, newClaimSet(object, hash)})
		}
	}
	return all, nil
}

// mayNeedRelabeling reports, without a read, whether the claim labels of an object may be outdated. It returns false
// while the index is not synced.
func (i *Index) mayNeedRelabeling(cluster logicalcluster.Name, gr schema.GroupResource, objectLabels map[string]string) bool {
	i.mu.RLock()
	synced, hasClaims := i.synced, len(i.clusters[cluster]) > 0
	i.mu.RUnlock()
	return synced && (hasClaims || gr == apiBindings || HasClaimLabels(objectLabels))
}

// isUpToDate reports whether the index has the current claims of a binding, so that admission applies them.
func (i *Index) isUpToDate(binding *apisv1alpha2.APIBinding) (bool, error) {
	hash, err := hashClaims(binding)
	if err != nil {
		return false, err
	}
	i.mu.RLock()
	defer i.mu.RUnlock()
	if !i.synced {
		return true, nil // Labels reads the watch cache, as the caller did
	}
	all := i.clusters[logicalcluster.Of(binding)]
	at, known := findBinding(all, binding.Name)
	if !known {
		return hash == contentHash{}, nil
	}
	return all[at].set.hash == hash, nil
}

// Sizes returns the number of logical clusters with claims and of distinct claim sets, which bound the memory of the
// index.
func (i *Index) Sizes() (clusters, sets int) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return len(i.clusters), len(i.sets)
}

// update adds, replaces or deletes the entry of a binding. Slices are copied on write, because readers use them without
// holding mu.
func (i *Index) update(object *apisv1alpha2.APIBinding) error {
	hash, err := hashClaims(object)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	cluster := logicalcluster.Of(object)
	all := i.clusters[cluster]
	at, known := findBinding(all, object.Name)
	switch {
	case hash == contentHash{}:
		i.deleteEntry(cluster, object.Name)
	case known && all[at].set.hash == hash:
	case known:
		replaced := slices.Clone(all)
		replaced[at].set = i.acquire(object, hash)
		i.clusters[cluster] = replaced
		i.release(all[at].set)
	default:
		i.clusters[cluster] = slices.Insert(slices.Clone(all), at, bindingClaims{object.Name, i.acquire(object, hash)})
	}
	return nil
}

// deleteEntry deletes the entry of a binding. Callers must hold mu.
func (i *Index) deleteEntry(cluster logicalcluster.Name, binding string) {
	all := i.clusters[cluster]
	at, known := findBinding(all, binding)
	if !known {
		return
	}
	i.release(all[at].set)
	if len(all) == 1 {
		delete(i.clusters, cluster)
		return
	}
	i.clusters[cluster] = slices.Delete(slices.Clone(all), at, at+1)
}

func (i *Index) acquire(object *apisv1alpha2.APIBinding, hash contentHash) *claimSet {
	set := i.sets[hash]
	if set == nil {
		set = newClaimSet(object, hash)
		i.sets[hash] = set
	}
	set.refs++
	return set
}

func (i *Index) release(s *claimSet) {
	if s.refs--; s.refs == 0 {
		delete(i.sets, s.hash)
	}
}

func findBinding(all []bindingClaims, binding string) (at int, known bool) {
	return slices.BinarySearchFunc(all, binding, func(a bindingClaims, name string) int { return strings.Compare(a.binding, name) })
}
