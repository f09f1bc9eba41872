// Package workspacetypes has the token issuers that workspace types name, from the WorkspaceTypes and
// WorkspaceAuthenticationConfigurations of all shards.
//
// It stores these objects and nothing per workspace. Package shards fills it; package index has the type of a logical
// cluster; package issuers verifies tokens.
package workspacetypes

import (
	"strings"
	"sync"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
)

// Key identifies an object of a shard.
type Key struct {
	Cluster logicalcluster.Name
	Name    string
}

// Registry has the types and configurations of all shards. It is safe for concurrent use.
type Registry struct {
	index *index.Index

	mu     sync.RWMutex
	shards map[string]*objects
}

// objects has the objects of one shard. Types without configurations are not stored.
type objects struct {
	types          map[Key][]string // names of configurations of the same logical cluster
	configurations map[Key][]tenancyv1alpha1.JWTAuthenticator
}

// New returns an empty registry. It resolves the paths of types in the index.
func New(idx *index.Index) *Registry { return &Registry{index: idx, shards: map[string]*objects{}} }

// Issuers returns the issuers that a workspace type "<path>:<name>" names, none for an unknown type. Callers must not
// modify the result.
func (r *Registry) Issuers(workspaceType string) []tenancyv1alpha1.JWTAuthenticator {
	colon := strings.LastIndexByte(workspaceType, ':')
	if colon <= 0 {
		return nil
	}
	path, err := logicalcluster.ParsePath(workspaceType[:colon])
	if err != nil {
		return nil
	}
	route, resolution := r.index.Load().Resolve(path)
	if resolution != index.Found {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	shard := r.shards[route.Shard.Name]
	if shard == nil {
		return nil
	}
	var issuers []tenancyv1alpha1.JWTAuthenticator
	for _, name := range shard.types[Key{route.Cluster, workspaceType[colon+1:]}] {
		issuers = append(issuers, shard.configurations[Key{route.Cluster, name}]...)
	}
	return issuers
}

// RemoveShard removes all objects of a shard.
func (r *Registry) RemoveShard(shard string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.shards, shard)
}

// PutType adds or replaces the names of a type's configurations; none remove the type.
func (r *Registry) PutType(shard string, key Key, configurations []string) {
	r.update(shard, func(o *objects) { put(o.types, key, configurations) })
}

// PutConfiguration adds or replaces the issuers of a configuration; none remove it.
func (r *Registry) PutConfiguration(shard string, key Key, issuers []tenancyv1alpha1.JWTAuthenticator) {
	r.update(shard, func(o *objects) { put(o.configurations, key, issuers) })
}

// ReplaceTypes replaces all types of the shard.
func (r *Registry) ReplaceTypes(shard string, types map[Key][]string) {
	r.update(shard, func(o *objects) { o.types = withoutEmpty(types) })
}

// ReplaceConfigurations replaces all configurations of the shard.
func (r *Registry) ReplaceConfigurations(shard string, configurations map[Key][]tenancyv1alpha1.JWTAuthenticator) {
	r.update(shard, func(o *objects) { o.configurations = withoutEmpty(configurations) })
}

func (r *Registry) update(shard string, change func(*objects)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.shards[shard]
	if o == nil {
		o = &objects{types: map[Key][]string{}, configurations: map[Key][]tenancyv1alpha1.JWTAuthenticator{}}
		r.shards[shard] = o
	}
	change(o)
}

// put sets an entry, or removes it if it has no values.
func put[T any](entries map[Key][]T, key Key, values []T) {
	if len(values) == 0 {
		delete(entries, key)
		return
	}
	entries[key] = values
}

func withoutEmpty[T any](entries map[Key][]T) map[Key][]T {
	kept := make(map[Key][]T, len(entries))
	for key, values := range entries {
		put(kept, key, values)
	}
	return kept
}
