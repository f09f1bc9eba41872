package workspacetype

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// Aliases returns the type and all types that it extends, in depth-first order over spec.extend.with: each base
// precedes its own bases, none appears twice, and the type itself is last. A base without a path is looked up in the
// cluster of the type that references it.
//
// A missing base and a cycle are errors that wrap ErrUnresolvable and name the type.
func (r *Resolver) Aliases(ctx context.Context, leaf Resolved) ([]Resolved, error) {
	visitor := &aliasWalk{resolver: r, seen: map[key]bool{leaf.key(): true}}
	if err := visitor.visitBases(ctx, leaf, []Resolved{leaf}); err != nil {
		return nil, err
	}
	return append(visitor.found, leaf), nil
}

// aliasWalk is one walk over the bases of a type.
type aliasWalk struct {
	resolver *Resolver
	seen     map[key]bool
	found    []Resolved
}

// visitBases visits the bases of the last type of trail, which is the path from the leaf to that type.
func (a *aliasWalk) visitBases(ctx context.Context, of Resolved, trail []Resolved) error {
	for _, with := range of.Spec.Extend.With {
		base, err := a.resolveBase(ctx, of, with)
		if err != nil {
			return err
		}
		if cycle := findCycle(trail, base); cycle != "" {
			return fmt.Errorf("%w: workspace type %q extends itself: %s", ErrUnresolvable, base.Reference, cycle)
		}
		if a.seen[base.key()] {
			continue
		}
		a.seen[base.key()] = true
		a.found = append(a.found, base)
		if err := a.visitBases(ctx, base, append(trail, base)); err != nil {
			return err
		}
	}
	return nil
}

func (a *aliasWalk) resolveBase(ctx context.Context, of Resolved, with tenancyv1alpha1.WorkspaceTypeReference) (Resolved, error) {
	ref, err := toReference(with)
	if err != nil {
		return Resolved{}, fmt.Errorf("workspace type %q: %w", of.Reference, err)
	}
	if ref.Path.Empty() {
		ref.Path = of.Cluster.Path()
	}
	base, err := a.resolver.Get(ctx, ref)
	if errors.Is(err, ErrUnresolvable) {
		return Resolved{}, fmt.Errorf("%w: workspace type %q extends %q, which does not exist", ErrUnresolvable, of.Reference, ref)
	}
	return base, err
}

// findCycle returns the cycle "a -> b -> a" if base is already on the trail, else "".
func findCycle(trail []Resolved, base Resolved) string {
	for i, t := range trail {
		if t.key() != base.key() {
			continue
		}
		var cycle strings.Builder
		for _, step := range trail[i:] {
			cycle.WriteString(step.Reference.String() + " -> ")
		}
		return cycle.String() + base.Reference.String()
	}
	return ""
}

// Initializers returns the initializers of a new workspace with these aliases: "<cluster name>:<type name>" of each
// alias that has one, in alias order, and the system's own for default bindings at the end if any alias has those.
func Initializers(aliases []Resolved) []corev1alpha1.LogicalClusterInitializer {
	var initializers []corev1alpha1.LogicalClusterInitializer
	bindings := false
	for _, alias := range aliases {
		if alias.Spec.Initializer {
			initializers = append(initializers, corev1alpha1.LogicalClusterInitializer(alias.LifecycleName()))
		}
		bindings = bindings || len(alias.Spec.DefaultAPIBindings) > 0
	}
	if bindings {
		initializers = append(initializers, corev1alpha1.SystemAPIBindingsInitializer)
	}
	return initializers
}

// Terminators returns the terminators of a new workspace with these aliases, in alias order.
func Terminators(aliases []Resolved) []corev1alpha1.LogicalClusterTerminator {
	var terminators []corev1alpha1.LogicalClusterTerminator
	for _, alias := range aliases {
		if alias.Spec.Terminator {
			terminators = append(terminators, corev1alpha1.LogicalClusterTerminator(alias.LifecycleName()))
		}
	}
	return terminators
}

// LifecycleName is the name of the type's initializer and of its terminator: "<cluster name>:<type name>".
func (r Resolved) LifecycleName() string { return r.Cluster.String() + ":" + r.Name }
