package authorization

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

type visitedKey struct{}

// roleKey identifies a Role; the namespace of a ClusterRole is empty.
type roleKey struct{ namespace, name string }

// withVisitedRoles returns a context for one evaluation of one policy for one user, in which each role has its rules once. Tenants may
// bind a large role any number of times: the work of a request is the size of what it reads, not a product of both.
func withVisitedRoles(ctx context.Context) context.Context {
	return context.WithValue(ctx, visitedKey{}, sets.New[roleKey]())
}

// isFirstVisit reports whether a role is visited for the first time. It fails when the request has ended, because the stock evaluation does
// not check the context.
func isFirstVisit(ctx context.Context, key roleKey) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	visited, ok := ctx.Value(visitedKey{}).(sets.Set[roleKey])
	if !ok {
		return true, nil
	}
	if visited.Has(key) {
		return false, nil
	}
	visited.Insert(key)
	return true, nil
}

// visitingSource is a source whose roles have their rules once for each context of withVisitedRoles.
type visitingSource struct{ source }

func (v visitingSource) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	if first, err := isFirstVisit(ctx, roleKey{namespace, name}); err != nil || !first {
		return &rbacv1.Role{}, err
	}
	return v.source.GetRole(ctx, namespace, name)
}

func (v visitingSource) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	if first, err := isFirstVisit(ctx, roleKey{name: name}); err != nil || !first {
		return &rbacv1.ClusterRole{}, err
	}
	return v.source.GetClusterRole(ctx, name)
}
