// Package workspacetypes knows which issuers of tokens the types of workspaces bring: the WorkspaceTypes and
// WorkspaceAuthenticationConfigurations of all shards, as far as that needs them.
//
// It holds those objects and nothing per workspace. Package shards fills it; which type a logical cluster has is in
// package index; tokens are verified elsewhere.
package workspacetypes

import (
	"strings"
	"sync"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
)

// Key is an object of a shard.
type Key struct {
	Cluster logicalcluster.Name
	Name    string
}

// Catalog is safe for concurrent use.
type Catalog struct {
	index *index.Index

	mu     sync.RWMutex
	shards map[string]*contents
}

// contents is what one shard has. Types without configurations are not kept.
type contents struct {
	types          map[Key][]string // names of configurations of the same logical cluster
	configurations map[Key][]tenancyv1alpha1.JWTAuthenticator
}

// New returns an empty catalog that finds the logical clusters of types in the index.
func New(idx *index.Index) *Catalog { return &Catalog{index: idx, shards: map[string]*contents{}} }

// Issuers returns the issuers of a workspace type, given as "<path>:<name>". One that is not known has none. The answer
// is not to be written to.
func (c *Catalog) Issuers(kind string) []tenancyv1alpha1.JWTAuthenticator {
	colon := strings.LastIndexByte(kind, ':')
	if colon <= 0 {
		return nil
	}
	path, err := logicalcluster.ParsePath(kind[:colon])
	if err != nil {
		return nil
	}
	route, verdict := c.index.Load().Lookup(path)
	if verdict != index.Found {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	at := c.shards[route.Shard.Name]
	if at == nil {
		return nil
	}
	var issuers []tenancyv1alpha1.JWTAuthenticator
	for _, name := range at.types[Key{route.Cluster, kind[colon+1:]}] {
		issuers = append(issuers, at.configurations[Key{route.Cluster, name}]...)
	}
	return issuers
}

// RemoveShard forgets all objects of a shard.
func (c *Catalog) RemoveShard(shard string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.shards, shard)
}

// PutType says which configurations a type of the shard names.
func (c *Catalog) PutType(shard string, key Key, configurations []string) {
	c.update(shard, func(at *contents) { put(at.types, key, configurations) })
}

// PutConfiguration says which issuers a configuration of the shard has.
func (c *Catalog) PutConfiguration(shard string, key Key, issuers []tenancyv1alpha1.JWTAuthenticator) {
	c.update(shard, func(at *contents) { put(at.configurations, key, issuers) })
}

// ReplaceTypes says what types the shard has, all of them.
func (c *Catalog) ReplaceTypes(shard string, types map[Key][]string) {
	c.update(shard, func(at *contents) { at.types = withoutEmpty(types) })
}

// ReplaceConfigurations says what configurations the shard has, all of them.
func (c *Catalog) ReplaceConfigurations(shard string, configurations map[Key][]tenancyv1alpha1.JWTAuthenticator) {
	c.update(shard, func(at *contents) { at.configurations = withoutEmpty(configurations) })
}

func (c *Catalog) update(shard string, change func(*contents)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.shards[shard]
	if at == nil {
		at = &contents{types: map[Key][]string{}, configurations: map[Key][]tenancyv1alpha1.JWTAuthenticator{}}
		c.shards[shard] = at
	}
	change(at)
}

// put sets the entry, or removes it if there is nothing to say.
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
