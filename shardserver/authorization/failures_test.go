package authorization

import (
	"context"
	"errors"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// failingSource is a policy source that fails with err.
type failingSource struct{ err error }

func (f failingSource) GetRole(context.Context, string, string) (*rbacv1.Role, error) {
	return nil, f.err
}
func (f failingSource) ListRoleBindings(context.Context, string) ([]*rbacv1.RoleBinding, error) {
	return nil, f.err
}
func (f failingSource) GetClusterRole(context.Context, string) (*rbacv1.ClusterRole, error) {
	return nil, f.err
}
func (f failingSource) ListClusterRoleBindings(context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	binding := &rbacv1.ClusterRoleBinding{
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "bob"}}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "missing"},
	}
	if apierrors.IsNotFound(f.err) {
		return []*rbacv1.ClusterRoleBinding{binding}, nil
	}
	return nil, f.err
}

func TestPolicyReadErrorIsReturned(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		failed bool
	}{
		"storage error":             {errors.New("etcd is unavailable"), true},
		"missing role of a binding": {apierrors.NewNotFound(schema.GroupResource{Resource: "clusterroles"}, "missing"), false},
	} {
		t.Run(name, func(t *testing.T) {
			bob := &user.DefaultInfo{Name: "bob"}
			s := &accessRequest{ctx: t.Context(), users: []user.Info{bob}, attributes: authorizer.AttributesRecord{User: bob, Verb: "get", Path: "/x"}}
			chain := &rbacChain{steps: []step{{key: "05-bootstrap", check: checkPolicy("bootstrap policy", newPolicy(failingSource{tc.err}))}, {key: "05-local", check: func(*accessRequest) stepResult { return delegate("nothing") }}}}
			decision, _, err := chain.run(s)
			if decision != authorizer.DecisionNoOpinion || (err != nil) != tc.failed {
				t.Errorf("got %v, %v", decision, err)
			}
		})
	}
}
