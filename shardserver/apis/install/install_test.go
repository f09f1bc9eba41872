package install

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := Install(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func TestInternalVersion(t *testing.T) {
	scheme := newScheme(t)
	workspace := &tenancyv1alpha1.Workspace{}
	kinds, _, err := scheme.ObjectKinds(workspace)
	if err != nil {
		t.Fatal(err)
	}
	if len(kinds) != 2 || kinds[0].Version != "v1alpha1" || kinds[1].Version != runtime.APIVersionInternal {
		t.Errorf("kinds = %v, want the external one first", kinds)
	}
	internal, err := scheme.UnsafeConvertToVersion(workspace, schema.GroupVersion{Group: "tenancy.kcp.io", Version: runtime.APIVersionInternal})
	if err != nil || internal != runtime.Object(workspace) {
		t.Errorf("conversion yields %T, %v, want the very object", internal, err)
	}
	for _, group := range []string{corev1alpha1.GroupName, tenancyv1alpha1.GroupName} {
		if versions := scheme.PrioritizedVersionsForGroup(group); len(versions) != 1 || versions[0].Version != "v1alpha1" {
			t.Errorf("versions of %s = %v", group, versions)
		}
	}
}

func TestDefaults(t *testing.T) {
	scheme := newScheme(t)

	cluster := &corev1alpha1.LogicalCluster{}
	workspaces := &tenancyv1alpha1.WorkspaceList{Items: []tenancyv1alpha1.Workspace{{}, {Status: tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseReady}}}}
	withChild := &tenancyv1alpha1.WorkspaceType{Spec: tenancyv1alpha1.WorkspaceTypeSpec{DefaultChildWorkspaceType: &tenancyv1alpha1.WorkspaceTypeReference{Name: "team"}}}
	withoutChild := &tenancyv1alpha1.WorkspaceType{}
	for _, obj := range []runtime.Object{cluster, workspaces, withChild, withoutChild} {
		scheme.Default(obj)
	}
	if cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling || workspaces.Items[0].Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling {
		t.Error("a phase that is left out is Scheduling, in lists too")
	}
	if workspaces.Items[1].Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
		t.Error("an existing phase must be kept")
	}
	if got := withChild.Spec.DefaultChildWorkspaceType.String(); got != "team" {
		t.Errorf("the chosen default child became %s", got)
	}
	if got := withoutChild.Spec.DefaultChildWorkspaceType.String(); got != "root:universal" {
		t.Errorf("the default child is %s", got)
	}
}
