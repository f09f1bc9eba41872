package tenancy

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/apis/install"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var workspaces = &registry.Kind[*tenancyv1alpha1.Workspace]{
	Resource:   tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"),
	Singular:   "workspace",
	ShortNames: []string{"ws"},

	New:        func() *tenancyv1alpha1.Workspace { return &tenancyv1alpha1.Workspace{} },
	NewList:    func() runtime.Object { return &tenancyv1alpha1.WorkspaceList{} },
	Default:    install.DefaultWorkspace,
	Derive:     deriveMetadata,
	CopySpec:   func(to, from *tenancyv1alpha1.Workspace) { to.Spec = from.Spec },
	CopyStatus: func(to, from *tenancyv1alpha1.Workspace) { to.Status = from.Status },
	SameSpec:   func(a, b *tenancyv1alpha1.Workspace) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },
	SameStatus: func(a, b *tenancyv1alpha1.Workspace) bool { return equality.Semantic.DeepEqual(a.Status, b.Status) },

	KeepStatusOnUpdate: registry.IsLoopbackRequest,

	ValidateName:       validateName,
	ValidateSpec:       validateWorkspaceSpec,
	ValidateStatus:     validateWorkspaceStatus,
	ValidateTransition: validateWorkspaceTransition,

	Columns: append(registry.Columns{
		registry.Column("Type", ".spec.type.name"),
		registry.LabelColumn("Region", tenancyv1alpha1.RegionLabelKey),
		registry.Column("Phase", ".status.phase"),
		registry.Column("URL", ".spec.URL"),
		registry.Age,
	}, registry.Problem[*tenancyv1alpha1.Workspace]()...),
}

// deriveMetadata sets metadata that are derived from the status: the phase label, and the owner reduced to the name when the
// remainder is not needed.
func deriveMetadata(workspace *tenancyv1alpha1.Workspace) {
	labels := maps.Clone(workspace.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1alpha1.PhaseLabelKey] = string(workspace.Status.Phase)
	workspace.Labels = labels
	if workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseReady {
		workspace.Annotations = kcpcore.WithTrimmedOwner(workspace.Annotations)
	}
}

func validateWorkspaceSpec(workspace *tenancyv1alpha1.Workspace) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if workspaceType := workspace.Spec.Type; workspaceType != nil {
		errs = append(errs, validateTypeReference(*workspaceType, path.Child("type"))...)
	}
	if location := workspace.Spec.Location; location != nil {
		errs = append(errs, registry.ValidateSelector(location.Selector, path.Child("location", "selector"))...)
	}
	if mount := workspace.Spec.Mount; mount != nil {
		path := path.Child("mount", "ref")
		errs = append(errs, registry.ValidateRequired(mount.Reference.APIVersion, path.Child("apiVersion"))...)
		errs = append(errs, registry.ValidateRequired(mount.Reference.Kind, path.Child("kind"))...)
		errs = append(errs, registry.ValidateRequired(mount.Reference.Name, path.Child("name"))...)
	}
	return errs
}

func validateWorkspaceStatus(workspace *tenancyv1alpha1.Workspace) field.ErrorList {
	path := field.NewPath("status")
	errs := registry.ValidatePhase(workspace.Status.Phase, path.Child("phase"))
	errs = append(errs, registry.ValidateConditions(workspace.Status.Conditions, path.Child("conditions"))...)
	errs = append(errs, registry.ValidateInitializers(workspace.Status.Initializers, path.Child("initializers"))...)
	return append(errs, registry.ValidateInitializers(workspace.Status.Terminators, path.Child("terminators"))...)
}

// validateWorkspaceTransition checks that the destination and the type of a workspace do not change once they are set.
func validateWorkspaceTransition(workspace, old *tenancyv1alpha1.Workspace) field.ErrorList {
	path := field.NewPath("spec")
	spec, before := workspace.Spec, old.Spec
	var errs field.ErrorList
	if before.URL != "" && spec.URL == "" {
		errs = append(errs, field.Invalid(path, "", "URL cannot be unset"))
	}
	switch {
	case before.Cluster == "":
	case spec.Cluster == "":
		errs = append(errs, field.Invalid(path, "", "cluster cannot be unset"))
	default:
		errs = append(errs, registry.ValidateImmutable(spec.Cluster, before.Cluster, path.Child("cluster"))...)
	}
	if spec.Type != nil && before.Type != nil {
		errs = append(errs, registry.ValidateImmutable(string(spec.Type.Name), string(before.Type.Name), path.Child("type", "name"))...)
		errs = append(errs, registry.ValidateImmutable(spec.Type.Path, before.Type.Path, path.Child("type", "path"))...)
	}
	if spec.Mount != nil && before.Mount != nil && spec.Mount.Reference != before.Mount.Reference {
		errs = append(errs, field.Invalid(path.Child("mount", "ref"), spec.Mount.Reference, "ref is immutable"))
	}
	return errs
}
