package crdregistry

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// inFlightKey names a resource in a logical cluster, or in the wildcard for requests over all logical clusters.
type inFlightKey struct {
	cluster  logicalcluster.Name
	resource schema.GroupResource
}

// inFlight tracks the requests in flight to a resource in one logical cluster. Each definition has one; a bound resource
// has one while requests write or watch it.
type inFlight struct {
	// writers counts the writes that began before the resource was terminating.
	writers atomic.Int64
	// watches are the open watches of clients; nil without any.
	watches map[*clientWatch]struct{}
}

// clientWatch is a watch that must end when the definition or the binding of its resource changes.
type clientWatch struct {
	cancel func()
	// bound is the bound resource that the watch began with, nil for a resource of the logical cluster's own definition.
	bound *bindings.Resource
}

// cancelWatches ends all watches. The clients list again, and get the objects as they are defined now.
func (f *inFlight) cancelWatches() {
	for w := range f.watches {
		w.cancel()
	}
	f.watches = nil
}

// cancelWatchesUnless ends the watches of bound resources that are not current.
func (f *inFlight) cancelWatchesUnless(current func(*bindings.Resource) bool) {
	for w := range f.watches {
		if w.bound != nil && !current(w.bound) {
			delete(f.watches, w)
			w.cancel()
		}
	}
}

func (r *Registry) retainInFlight(key inFlightKey) *ref[*inFlight] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retainInFlightLocked(key)
}

func (r *Registry) retainInFlightLocked(key inFlightKey) *ref[*inFlight] {
	return r.inFlight.retain(key, func() *inFlight { return &inFlight{} })
}
