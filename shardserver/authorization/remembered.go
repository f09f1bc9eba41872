package authorization

import (
	"context"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// remembered memoizes what one decision reads of one logical cluster's policy. Two steps, workspace content and local
// RBAC, read the same bindings and roles and should evaluate the same state.
type remembered struct {
	cluster logicalcluster.Name
	reads   map[any]read
}

// read is the result of one read.
type read struct {
	value any
	err   error
}

// Keys: the cluster role bindings, and cluster roles by name.
type (
	allBindings struct{}
	clusterRole string
)

var clusterRoleBindings = allBindings{}

type rememberedKey struct{}

// withRemembered returns a context that memoizes reads of a logical cluster. The context belongs to one decision, which
// runs in one goroutine.
func withRemembered(ctx context.Context, cluster logicalcluster.Name) context.Context {
	return context.WithValue(ctx, rememberedKey{}, &remembered{cluster: cluster, reads: make(map[any]read, 4)})
}

// remember returns the memoized result for a key in the context's logical cluster, or reads and memoizes it.
func remember[T any](ctx context.Context, key any, from func() (T, error)) (T, error) {
	r, ok := ctx.Value(rememberedKey{}).(*remembered)
	if !ok {
		return from()
	}
	if cluster, _ := logicalcluster.From(ctx); cluster != r.cluster { // a check of another logical cluster within this decision
		return from()
	}
	if before, ok := r.reads[key]; ok {
		value, _ := before.value.(T)
		return value, before.err
	}
	value, err := from()
	r.reads[key] = read{value, err}
	return value, err
}
