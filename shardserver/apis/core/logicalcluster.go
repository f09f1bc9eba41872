package core

import (
	"regexp"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/install"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var apiVersionPattern = regexp.MustCompile(`^([^/]+/)?[^/]+$`)

var logicalClusters = &registry.Kind[*corev1alpha1.LogicalCluster]{
	Resource: corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"),
	Singular: "logicalcluster",

	New:        func() *corev1alpha1.LogicalCluster { return &corev1alpha1.LogicalCluster{} },
	NewList:    func() runtime.Object { return &corev1alpha1.LogicalClusterList{} },
	Default:    install.DefaultLogicalCluster,
	Initialize: initializeStatus,
	Derive:     deriveMetadata,
	CopySpec:   func(to, from *corev1alpha1.LogicalCluster) { to.Spec = from.Spec },
	CopyStatus: func(to, from *corev1alpha1.LogicalCluster) { to.Status = from.Status },
	SameSpec: func(a, b *corev1alpha1.LogicalCluster) bool {
		return equality.Semantic.DeepEqual(a.Spec, b.Spec)
	},
	SameStatus: func(a, b *corev1alpha1.LogicalCluster) bool {
		return equality.Semantic.DeepEqual(a.Status, b.Status)
	},

	ValidateName:   validateLogicalClusterName,
	ValidateSpec:   validateLogicalClusterSpec,
	ValidateStatus: validateLogicalClusterStatus,

	Columns: registry.Columns{registry.Column("Phase", ".status.phase"), registry.Column("URL", ".status.URL"), registry.Age, workspacesColumn()},
}

// workspacesColumn returns the column of the wide output with what is used of the limits of Workspaces; empty without
// limits.
func workspacesColumn() registry.PrintedColumn {
	column := registry.ComputedColumn("Workspaces", func(cluster *corev1alpha1.LogicalCluster) string {
		return conditionsv1alpha1.GetMessage(cluster, corev1alpha1.WorkspacesWithinLimits)
	})
	column.Priority = 1
	return column
}

func validateLogicalClusterName(name string, path *field.Path) field.ErrorList {
	return registry.ValidateOneOf(name, []string{corev1alpha1.LogicalClusterName}, path)
}

func validateLogicalClusterSpec(cluster *corev1alpha1.LogicalCluster) field.ErrorList {
	path := field.NewPath("spec")
	errs := registry.ValidateInitializers(cluster.Spec.Initializers, path.Child("initializers"))
	errs = append(errs, registry.ValidateInitializers(cluster.Spec.Terminators, path.Child("terminators"))...)
	if owner := cluster.Spec.Owner; owner != nil {
		path := path.Child("owner")
		errs = append(errs, registry.ValidateRequired(owner.APIVersion, path.Child("apiVersion"))...)
		errs = append(errs, registry.ValidatePattern(owner.APIVersion, apiVersionPattern, path.Child("apiVersion"))...)
		errs = append(errs, registry.ValidateRequired(owner.Resource, path.Child("resource"))...)
		errs = append(errs, registry.ValidateRequired(owner.Name, path.Child("name"))...)
		errs = append(errs, registry.ValidateRequired(owner.Cluster, path.Child("cluster"))...)
		errs = append(errs, registry.ValidateRequired(string(owner.UID), path.Child("uid"))...)
	}
	return errs
}

func validateLogicalClusterStatus(cluster *corev1alpha1.LogicalCluster) field.ErrorList {
	path := field.NewPath("status")
	errs := registry.ValidatePhase(cluster.Status.Phase, path.Child("phase"))
	errs = append(errs, registry.ValidateConditions(cluster.Status.Conditions, path.Child("conditions"))...)
	errs = append(errs, registry.ValidateInitializers(cluster.Status.Initializers, path.Child("initializers"))...)
	return append(errs, registry.ValidateInitializers(cluster.Status.Terminators, path.Child("terminators"))...)
}
