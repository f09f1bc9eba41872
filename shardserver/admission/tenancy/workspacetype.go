package tenancy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/apis"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
	"github.com/atoll-dev/atoll/shardserver/workspacepath"
)

// rootTypeName is the name of the type of the root workspace. Only root may have it.
const rootTypeName = "root"

// workspaceType validates the references of a WorkspaceType.
type workspaceType struct {
	*admission.Handler
	types      *workspacetype.Resolver
	clusters   rules.ClusterReader
	exports    apis.ExportAccess
	permission rules.Permission
}

// NewWorkspaceType returns the plug-in tenancy.kcp.io/WorkspaceType.
func NewWorkspaceType(config rules.Config) admission.Interface {
	return &workspaceType{
		Handler:    admission.NewHandler(admission.Create, admission.Update),
		types:      config.Types,
		clusters:   rules.NewClusterReader(config.Registry),
		exports:    apis.NewExportAccess(config),
		permission: rules.NewPermission(config),
	}
}

// Validate implements admission.ValidationInterface.
func (w *workspaceType) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.WorkspaceTypes || a.GetSubresource() != "" {
		return nil
	}
	obj, err := rules.ObjectOf[*tenancyv1alpha1.WorkspaceType](a.GetObject())
	if err != nil {
		return err
	}
	old := &tenancyv1alpha1.WorkspaceType{}
	if a.GetOperation() == admission.Update {
		if old, err = rules.ObjectOf[*tenancyv1alpha1.WorkspaceType](a.GetOldObject()); err != nil {
			return err
		}
	}
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return rules.Forbid(a, "%w", rules.ErrNoCluster)
	}
	if obj.Name == rootTypeName && cluster != logicalcluster.Root {
		return rules.Forbid(a, "root workspace type can only be created in root cluster")
	}
	if field := findMissingPath(obj.Spec); field != "" {
		return rules.Forbid(a, "%s must be set", field)
	}
	return w.validateDefaultBindings(ctx, a, cluster, old.Spec.DefaultAPIBindings, obj.Spec.DefaultAPIBindings)
}

// findMissingPath returns the first field that refers to a type without a path. A path is required, because such
// references are resolved in other workspaces than that of the type.
func findMissingPath(spec tenancyv1alpha1.WorkspaceTypeSpec) string {
	if spec.DefaultChildWorkspaceType != nil && spec.DefaultChildWorkspaceType.Path == "" {
		return "spec.defaultChildWorkspaceType.path"
	}
	for _, limit := range []struct {
		field    string
		selector *tenancyv1alpha1.WorkspaceTypeSelector
	}{
		{"spec.limitAllowedChildren", spec.LimitAllowedChildren},
		{"spec.limitAllowedParents", spec.LimitAllowedParents},
	} {
		if limit.selector != nil && slices.ContainsFunc(limit.selector.Types, lacksPath) {
			return limit.field + ".types.path"
		}
	}
	return ""
}

func lacksPath(ref tenancyv1alpha1.WorkspaceTypeReference) bool { return ref.Path == "" }

// validateDefaultBindings requires the permission to bind every export that becomes a default binding. Unchanged
// default bindings need no permission of the user who edits the type. A path that does not resolve is refused with the
// same error; an export may be created later.
func (w *workspaceType) validateDefaultBindings(ctx context.Context, a admission.Attributes, own logicalcluster.Name, before, after []tenancyv1alpha1.APIExportReference) error {
	clusters := sync.OnceValues(func() ([]*corev1alpha1.LogicalCluster, error) { return w.clusters.List(ctx) })
	for _, binding := range after {
		if slices.Contains(before, binding) {
			continue
		}
		path := binding.Path
		if path == "" {
			path = own.String()
		}
		if !w.canBindExport(ctx, a, path, binding.Export, clusters) {
			return rules.Forbid(a, "unable to use %s:%s as a default API binding: no permission to bind to export %s:%s", path, binding.Export, path, binding.Export)
		}
	}
	return nil
}

func (w *workspaceType) canBindExport(ctx context.Context, a admission.Attributes, path, export string, clusters func() ([]*corev1alpha1.LogicalCluster, error)) bool {
	parsed, err := logicalcluster.ParsePath(path)
	if err != nil {
		return false
	}
	cluster, err := w.locate(ctx, apiindex.Reference{Path: parsed, Name: export}, clusters)
	if err != nil {
		return false
	}
	allowed, err := w.permission.IsAllowed(ctx, a, cluster, apisv1alpha2.VerbBind, apisv1alpha2.GroupName, apisv1alpha2.SchemeGroupVersion.Version, rules.APIExports.Resource, export)
	return allowed && err == nil
}

// locate returns the logical cluster of a reference to an export, which need not exist. A path that leads through logical clusters of other
// shards is known by the exports and the LogicalClusters that have it.
func (w *workspaceType) locate(ctx context.Context, reference apiindex.Reference, clusters func() ([]*corev1alpha1.LogicalCluster, error)) (logicalcluster.Name, error) {
	reference = w.exports.Local(ctx, reference)
	cluster, err := w.types.Locate(ctx, reference.Path)
	if !errors.Is(err, workspacepath.ErrRemote) {
		return cluster, err
	}
	found, err := w.exports.Resolve(ctx, reference)
	if !apierrors.IsNotFound(err) {
		return found.Cluster, err
	}
	all, err := clusters()
	if err != nil {
		return logicalcluster.Name{}, err
	}
	return findByPath(all, reference.Path)
}

// findByPath returns the logical cluster with a path. While one of two is being deleted, it is the other one.
func findByPath(all []*corev1alpha1.LogicalCluster, path logicalcluster.Path) (logicalcluster.Name, error) {
	var found logicalcluster.Name
	for _, cluster := range all {
		if cluster.Annotations[logicalcluster.PathAnnotationKey] != path.String() || cluster.DeletionTimestamp != nil {
			continue
		}
		if !found.Empty() {
			return logicalcluster.Name{}, fmt.Errorf("two logical clusters have the path %q", path)
		}
		found = logicalcluster.Of(cluster)
	}
	if found.Empty() {
		return found, workspacepath.NewNotFound(path)
	}
	return found, nil
}
