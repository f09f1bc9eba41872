package install

import (
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// DefaultLogicalCluster sets defaults.
func DefaultLogicalCluster(cluster *corev1alpha1.LogicalCluster) {
	defaultPhase(&cluster.Status.Phase)
}

// DefaultWorkspace sets defaults.
func DefaultWorkspace(workspace *tenancyv1alpha1.Workspace) {
	defaultPhase(&workspace.Status.Phase)
}

// DefaultWorkspaceType sets defaults.
func DefaultWorkspaceType(workspaceType *tenancyv1alpha1.WorkspaceType) {
	if workspaceType.Spec.DefaultChildWorkspaceType == nil {
		workspaceType.Spec.DefaultChildWorkspaceType = &tenancyv1alpha1.WorkspaceTypeReference{
			Path: "root",
			Name: tenancyv1alpha1.WorkspaceTypeUniversal,
		}
	}
}

func defaultPhase(phase *corev1alpha1.LogicalClusterPhaseType) {
	if *phase == "" {
		*phase = corev1alpha1.LogicalClusterPhaseScheduling
	}
}

// addDefaults registers the defaulting functions, which run at every decoding, from clients and from storage. Shards
// have none.
func addDefaults(scheme *runtime.Scheme) {
	scheme.AddTypeDefaultingFunc(&corev1alpha1.LogicalCluster{}, func(obj any) { DefaultLogicalCluster(obj.(*corev1alpha1.LogicalCluster)) })
	scheme.AddTypeDefaultingFunc(&corev1alpha1.LogicalClusterList{}, func(obj any) {
		items := obj.(*corev1alpha1.LogicalClusterList).Items
		for i := range items {
			DefaultLogicalCluster(&items[i])
		}
	})
	scheme.AddTypeDefaultingFunc(&tenancyv1alpha1.Workspace{}, func(obj any) { DefaultWorkspace(obj.(*tenancyv1alpha1.Workspace)) })
	scheme.AddTypeDefaultingFunc(&tenancyv1alpha1.WorkspaceList{}, func(obj any) {
		items := obj.(*tenancyv1alpha1.WorkspaceList).Items
		for i := range items {
			DefaultWorkspace(&items[i])
		}
	})
	scheme.AddTypeDefaultingFunc(&tenancyv1alpha1.WorkspaceType{}, func(obj any) { DefaultWorkspaceType(obj.(*tenancyv1alpha1.WorkspaceType)) })
	scheme.AddTypeDefaultingFunc(&tenancyv1alpha1.WorkspaceTypeList{}, func(obj any) {
		items := obj.(*tenancyv1alpha1.WorkspaceTypeList).Items
		for i := range items {
			DefaultWorkspaceType(&items[i])
		}
	})
}
