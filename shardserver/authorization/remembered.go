package authorization

import (
	"context"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// remembered is what was read of one logical cluster's policy for one decision. Two steps ask for the same bindings and
// roles, whether the user may enter and what they may do there, and should answer from one state of it.
type remembered struct {
	cluster logicalcluster.Name
	reads   map[any]read
}

// read is the outcome of one read.
type read struct {
	value any
	err   error
}

// What is remembered: the cluster role bindings, and cluster roles by name.
type (
	allBindings struct{}
	clusterRole string
)

var clusterRoleBindings = allBindings{}

type rememberedKey struct{}

// withRemembered makes room for what is read of a logical cluster. The context belongs to one decision, which one goroutine
// makes.
func withRemembered(ctx context.Context, cluster logicalcluster.Name) context.Context {
	return context.WithValue(ctx, rememberedKey{}, &remembered{cluster: cluster, reads: make(map[any]read, 4)})
}

// remember returns what was read before under a key in the context's logical cluster, or reads it.
func remember[T any](ctx context.Context, key any, from func() (T, error)) (T, error) {
	r, ok := ctx.Value(rememberedKey{}).(*remembered)
	if !ok {
		return from()
	}
	if cluster, _ := logicalcluster.From(ctx); cluster != r.cluster { // what is asked about another one on the way
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
