package authorization

import (
	"context"
	"errors"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// failures collects the errors of reading a policy. The stock authorizer treats a policy that cannot be read like one
// that does not allow, and returns the error in the reason only. Such a refusal must not be a 403: controllers give up
// at 403 and retry at 500.
type failures struct {
	mu   sync.Mutex
	errs []error
}

type failuresKey struct{}

func withFailures(ctx context.Context) (context.Context, *failures) {
	f := &failures{}
	return context.WithValue(ctx, failuresKey{}, f), f
}

func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// recordError records an error in the context. NotFound is not an error.
func recordError[T any](ctx context.Context, result T, err error) (T, error) {
	if f, ok := ctx.Value(failuresKey{}).(*failures); ok && err != nil && !apierrors.IsNotFound(err) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err)
	}
	return result, err
}

// recordingSource is a source that records its errors in the context.
type recordingSource struct{ source }

func (r recordingSource) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	role, err := r.source.GetRole(ctx, namespace, name)
	return recordError(ctx, role, err)
}

func (r recordingSource) ListRoleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	bindings, err := r.source.ListRoleBindings(ctx, namespace)
	return recordError(ctx, bindings, err)
}

func (r recordingSource) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	role, err := r.source.GetClusterRole(ctx, name)
	return recordError(ctx, role, err)
}

func (r recordingSource) ListClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	bindings, err := r.source.ListClusterRoleBindings(ctx)
	return recordError(ctx, bindings, err)
}
