package workspacetype

import (
	"context"
	"errors"
	"fmt"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// CheckLimits returns nil if a workspace with the child's aliases is allowed below one with the parent's. Both
// end with the type itself. Otherwise the error wraps ErrNotAllowed.
//
// The types of a limit are compared by logical cluster and name, because tenants can change the path annotation of
// their types.
func (r *Resolver) CheckLimits(ctx context.Context, child, parent []Resolved) error {
	if len(child) == 0 || len(parent) == 0 {
		return fmt.Errorf("%w: a type is missing", ErrNotAllowed)
	}
	childType, parentType := child[len(child)-1], parent[len(parent)-1]
	for _, alias := range child {
		ok, err := r.admits(ctx, alias.Spec.LimitAllowedParents, parent)
		if err != nil {
			return fmt.Errorf("checking spec.limitAllowedParents of workspace type %q: %w", alias.Reference, err)
		}
		if !ok {
			return fmt.Errorf("%w: workspace type %q cannot be used below one of type %q: spec.limitAllowedParents of %q does not allow it",
				ErrNotAllowed, childType.Reference, parentType.Reference, alias.Reference)
		}
	}
	for _, alias := range parent {
		ok, err := r.admits(ctx, alias.Spec.LimitAllowedChildren, child)
		if err != nil {
			return fmt.Errorf("checking spec.limitAllowedChildren of workspace type %q: %w", alias.Reference, err)
		}
		if !ok {
			return fmt.Errorf("%w: a workspace of type %q cannot contain one of type %q: spec.limitAllowedChildren of %q does not allow it",
				ErrNotAllowed, parentType.Reference, childType.Reference, alias.Reference)
		}
	}
	return nil
}

// admits reports whether a limit lists at least one of the types. No limit admits all.
func (r *Resolver) admits(ctx context.Context, limit *tenancyv1alpha1.WorkspaceTypeSelector, types []Resolved) (bool, error) {
	if limit == nil {
		return true, nil
	}
	if limit.AllowsNone() {
		return false, nil
	}
	for _, listed := range limit.Types {
		ref, err := toReference(listed)
		if err != nil || ref.Path.Empty() {
			continue // invalid reference; admission rejects it when the type is written
		}
		for _, t := range types {
			if t.Name != ref.Name {
				continue
			}
			if ref.Path == t.Reference.Path {
				return true, nil
			}
			named, err := r.Get(ctx, ref)
			if errors.Is(err, ErrUnresolvable) {
				continue
			}
			if err != nil {
				return false, err
			}
			if named.key() == t.key() {
				return true, nil
			}
		}
	}
	return false, nil
}
