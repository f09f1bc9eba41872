package authorization

import (
	"context"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// memo memoizes what one decision reads of one logical cluster's policy. Two steps, workspace content and local
// RBAC, read the same bindings and roles and should evaluate the same state.
type memo struct {
	cluster logicalcluster.Name
	entries map[any]memoEntry
}

// memoEntry is the result of one read.
type memoEntry struct {
	value any
	err   error
}

// Keys: the cluster role bindings, and cluster roles by name.
type (
	clusterRoleBindingsKey struct{}
	clusterRoleKey         string
)

var clusterRoleBindings = clusterRoleBindingsKey{}

type memoKey struct{}

// withMemo returns a context that memoizes reads of a logical cluster. The context belongs to one decision, which
// runs in one goroutine.
func withMemo(ctx context.Context, cluster logicalcluster.Name) context.Context {
	return context.WithValue(ctx, memoKey{}, &memo{cluster: cluster, entries: make(map[any]memoEntry, 4)})
}

// memoize returns the memoized result for a key in the context's logical cluster, or reads and memoizes it.
func memoize[T any](ctx context.Context, key any, fetch func() (T, error)) (T, error) {
	r, ok := ctx.Value(memoKey{}).(*memo)
	if !ok {
		return fetch()
	}
	if cluster, _ := logicalcluster.From(ctx); cluster != r.cluster { // a check of another logical cluster within this decision
		return fetch()
	}
	if entry, ok := r.entries[key]; ok {
		value, _ := entry.value.(T)
		return value, entry.err
	}
	value, err := fetch()
	r.entries[key] = memoEntry{value, err}
	return value, err
}
