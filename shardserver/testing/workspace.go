package testing

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// NewWorkspace creates a universal workspace in the logical cluster parent as system:kcp:admin, waits until it is
// Ready, and returns it.
func (s *Shard) NewWorkspace(t testing.TB, parent, name string) *tenancyv1alpha1.Workspace {
	t.Helper()
	return NewWorkspace(t, s.Client(t, s.Admin(t)), parent, name)
}

// NewWorkspace is Shard.NewWorkspace with a client that sends requests to the logical cluster of the context.
func NewWorkspace(t testing.TB, c client.Client, parent, name string, changes ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	t.Helper()
	workspace := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}},
	}
	for _, change := range changes {
		change(workspace)
	}
	if err := c.Create(In(context.Background(), parent), workspace); err != nil {
		t.Fatalf("creating workspace %s in %s: %v", name, parent, err)
	}
	return WaitReady(t, c, parent, name)
}

// OnShard selects the shard of a workspace.
func OnShard(name string) func(*tenancyv1alpha1.Workspace) {
	return func(workspace *tenancyv1alpha1.Workspace) {
		workspace.Spec.Location = &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}}
	}
}

// WaitReady waits until a workspace is Ready and returns it.
func (s *Shard) WaitReady(t testing.TB, parent, name string) *tenancyv1alpha1.Workspace {
	t.Helper()
	return WaitReady(t, s.Client(t, s.Admin(t)), parent, name)
}

// WaitReady is Shard.WaitReady with a client.
func WaitReady(t testing.TB, c client.Client, parent, name string) *tenancyv1alpha1.Workspace {
	t.Helper()
	workspace := &tenancyv1alpha1.Workspace{}
	Eventually(t, "workspace "+name+" becomes Ready", func(ctx context.Context) error {
		if err := c.Get(In(ctx, parent), client.ObjectKey{Name: name}, workspace); err != nil {
			return err
		}
		if workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			return fmt.Errorf("phase is %q, conditions %+v", workspace.Status.Phase, workspace.Status.Conditions)
		}
		return nil
	})
	return workspace
}
