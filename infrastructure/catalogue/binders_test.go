package catalogue

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestPermissionToBindIsRevoked checks that without --binders the permission of previous groups is revoked, and that a binding of another owner
// stays.
func TestPermissionToBindIsRevoked(t *testing.T) {
	t.Parallel()
	with, without := Options{Export: "standard", Binders: "system:authenticated"}, Options{Export: "standard"}
	_, foreign := binders("standard", []string{"customers"})
	foreign.Labels = nil
	ensure := func(c client.Client, options Options) (*rbacv1.ClusterRoleBinding, error) {
		t.Helper()
		if err := ensureBinders(t.Context(), c, options.standard()); err != nil {
			t.Fatal(err)
		}
		got := &rbacv1.ClusterRoleBinding{}
		return got, c.Get(t.Context(), client.ObjectKeyFromObject(foreign), got)
	}
	for name, c := range map[string]client.Client{"new": newClient(t), "of a previous version": newClient(t, foreign.DeepCopy())} {
		if got, err := ensure(c, with); err != nil || len(got.Subjects) != 1 || got.Subjects[0].Name != "system:authenticated" {
			t.Errorf("%s, with the flag: %v, %v", name, got.Subjects, err)
		}
		for range 2 {
			if got, err := ensure(c, without); !apierrors.IsNotFound(err) {
				t.Errorf("%s, without the flag: %v, %v", name, got.Subjects, err)
			}
		}
	}
	if got, err := ensure(newClient(t, foreign), without); err != nil || len(got.Subjects) != 1 || metav1.HasLabel(got.ObjectMeta, labelManagedBy) {
		t.Errorf("a binding of another owner: %v, %v, %v", got.Subjects, got.Labels, err)
	}
}
