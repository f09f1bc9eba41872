// Package apis contains the plug-ins for writes of API exports, bindings and schemas, and of resources that other workspaces read.
package apis

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// ExportAccess resolves exports that objects refer to, and authorizes users to bind them.
type ExportAccess struct {
	exports    *apiindex.Resolver
	clusters   rules.ClusterReader
	permission rules.Permission
}

// NewExportAccess returns the access of a shard with a configuration.
func NewExportAccess(config rules.Config) ExportAccess {
	return ExportAccess{config.Exports, rules.NewClusterReader(config.Registry), rules.NewPermission(config)}
}

// Local returns a reference by the path of the request's logical cluster as one by its name, and others unchanged. The path may lead through
// logical clusters of other shards, and the index of exports by path may not have a new export yet.
func (e ExportAccess) Local(ctx context.Context, reference apiindex.Reference) apiindex.Reference {
	own, ok := logicalcluster.From(ctx)
	if !ok || reference.Path == own.Path() {
		return reference
	}
	if path, err := e.clusters.CanonicalPath(ctx); err == nil && path == reference.Path.String() {
		reference.Path = own.Path()
	}
	return reference
}

// locate returns the export of a reference. One in root, or in the logical cluster of the reference, need not exist: it
// may be created later. For other exports that do not exist, it returns a NotFound error.
func (e ExportAccess) locate(ctx context.Context, own logicalcluster.Name, reference apiindex.Reference) (bindings.ExportKey, error) {
	reference = e.Local(ctx, reference)
	for _, cluster := range []logicalcluster.Name{own, logicalcluster.Root} {
		if reference.Path == cluster.Path() {
			return bindings.ExportKey{Cluster: cluster, Name: reference.Name}, nil
		}
	}
	return e.Resolve(ctx, reference)
}

// Resolve returns the export of a reference, or a NotFound error.
func (e ExportAccess) Resolve(ctx context.Context, reference apiindex.Reference) (bindings.ExportKey, error) {
	export, err := e.exports.Resolve(ctx, e.Local(ctx, reference))
	if err != nil {
		return bindings.ExportKey{}, err
	}
	return apiindex.ExportKeyOf(export), nil
}

// CanBind reports whether the user of the request may bind an export.
func (e ExportAccess) CanBind(ctx context.Context, a admission.Attributes, export bindings.ExportKey) bool {
	allowed, err := e.permission.IsAllowed(ctx, a, export.Cluster, apisv1alpha2.VerbBind, apisv1alpha2.GroupName,
		apisv1alpha2.SchemeGroupVersion.Version, rules.APIExports.Resource, export.Name)
	return allowed && err == nil
}

// forbidBinding returns the same error for every refused binding: the user is not permitted, the export does not exist,
// the path does not resolve, or the resolution failed. So the error discloses nothing about workspaces that the user
// cannot access.
func forbidBinding(a admission.Attributes, reference apiindex.Reference) error {
	return rules.Forbid(a, "unable to %s %s: no permission to bind to export %s", strings.ToLower(string(a.GetOperation())), a.GetKind().Kind, reference)
}

// referenceIn parses a reference of an object in the request's logical cluster.
func referenceIn(ctx context.Context, path, name string) (logicalcluster.Name, apiindex.Reference, error) {
	own, ok := logicalcluster.From(ctx)
	if !ok {
		return own, apiindex.Reference{}, apierrors.NewInternalError(rules.ErrNoCluster)
	}
	reference, err := apiindex.NewReference(own, path, name)
	return own, reference, err
}
