package admission

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// exportAccess resolves exports that objects refer to, and authorizes users to bind them.
type exportAccess struct {
	exports    *apiindex.Resolver
	permission permission
}

func newExportAccess(config Config) exportAccess {
	return exportAccess{config.Exports, permission{config.Authorizer, config.WithDeepSAR}}
}

// locate returns the export of a reference. One in root, or in the logical cluster of the reference, need not exist: it
// may be created later. For other exports that do not exist, it returns a NotFound error.
func (e exportAccess) locate(ctx context.Context, own logicalcluster.Name, reference apiindex.Reference) (bindings.ExportKey, error) {
	for _, cluster := range []logicalcluster.Name{own, logicalcluster.Root} {
		if reference.Path == cluster.Path() {
			return bindings.ExportKey{Cluster: cluster, Name: reference.Name}, nil
		}
	}
	return e.resolve(ctx, reference)
}

// resolve returns the export of a reference, or a NotFound error.
func (e exportAccess) resolve(ctx context.Context, reference apiindex.Reference) (bindings.ExportKey, error) {
	export, err := e.exports.Resolve(ctx, reference)
	if err != nil {
		return bindings.ExportKey{}, err
	}
	return apiindex.ExportKeyOf(export), nil
}

// canBind reports whether the user of the request may bind an export.
func (e exportAccess) canBind(ctx context.Context, a admission.Attributes, export bindings.ExportKey) bool {
	allowed, err := e.permission.isAllowed(ctx, a, export.Cluster, apisv1alpha2.VerbBind, apisv1alpha2.GroupName,
		apisv1alpha2.SchemeGroupVersion.Version, apiExports.Resource, export.Name)
	return allowed && err == nil
}

// forbidBinding returns the same error for every refused binding: the user is not permitted, the export does not exist,
// the path does not resolve, or the resolution failed. So the error discloses nothing about workspaces that the user
// cannot access.
func forbidBinding(a admission.Attributes, reference apiindex.Reference) error {
	return forbid(a, "unable to %s %s: no permission to bind to export %s", strings.ToLower(string(a.GetOperation())), a.GetKind().Kind, reference)
}

// referenceIn parses a reference of an object in the request's logical cluster.
func referenceIn(ctx context.Context, path, name string) (logicalcluster.Name, apiindex.Reference, error) {
	own, ok := logicalcluster.From(ctx)
	if !ok {
		return own, apiindex.Reference{}, apierrors.NewInternalError(errNoCluster)
	}
	reference, err := apiindex.NewReference(own, path, name)
	return own, reference, err
}
