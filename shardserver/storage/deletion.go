package storage

import (
	"context"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// MaxEmpty bounds the resources that a Deletion may require to be empty.
const MaxEmpty = 100

// Deletion is the deletion of an object of the context's logical cluster below its registry, without a request of its own.
type Deletion struct {
	Resource        *Resource
	Namespace, Name string
	// ResourceVersion is that of the object that the caller has read. Another version is not deleted.
	ResourceVersion string
	// Empty are at most MaxEmpty resources that must have no object in the logical cluster, or in its namespace EmptyNamespace.
	Empty          []*Resource
	EmptyNamespace string
}

// EnterWrite is called before a write to a logical cluster that bypasses the storages of the registry. It returns an error
// if the logical cluster moves, as these storages do. The caller calls leave when the write has ended; its error means
// that the result is unknown.
func (r *Registry) EnterWrite(ctx context.Context, cluster logicalcluster.Name) (leave func() error, err error) {
	guard := r.currentMoves().Guard
	if guard == nil {
		return func() error { return nil }, nil
	}
	return guard.Enter(ctx, cluster)
}
