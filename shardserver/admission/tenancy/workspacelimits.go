package tenancy

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacelimits"
)

// workspaceLimits enforces the limits of Workspaces of the request's logical cluster and of all above it, for all users.
type workspaceLimits struct {
	*admission.Handler
	clusters rules.ClusterReader
	limits   *workspacelimits.Tracker
}

// NewWorkspaceLimits returns the plug-in tenancy.kcp.io/WorkspaceLimits.
func NewWorkspaceLimits(config rules.Config) admission.Interface {
	return &workspaceLimits{
		Handler:  admission.NewHandler(admission.Create),
		clusters: rules.NewClusterReader(config.Registry),
		limits:   config.WorkspaceLimits,
	}
}

// Validate implements admission.ValidationInterface. The error names the logical cluster with the limit, whose path begins
// the path of the request's, and the limit, but not how many Workspaces others have.
func (w *workspaceLimits) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if w.limits == nil || a.GetResource().GroupResource() != rules.Workspaces || a.GetSubresource() != "" {
		return nil
	}
	obj, err := rules.ObjectOf[*tenancyv1alpha1.Workspace](a.GetObject())
	if err != nil {
		return err
	}
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return apierrors.NewInternalError(rules.ErrNoCluster)
	}
	text, err := w.clusters.CanonicalPath(ctx)
	if apierrors.IsNotFound(err) {
		return rules.Forbid(a, "the logical cluster does not exist")
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("reading the path of logical cluster %q: %w", cluster, err))
	}
	path, err := logicalcluster.ParsePath(text)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("path of logical cluster %q: %w", cluster, err))
	}
	exceeded, err := w.limits.Reserve(ctx, cluster, path, obj.Name, a.IsDryRun())
	if apierrors.IsAlreadyExists(err) {
		return err
	}
	if err != nil {
		return apierrors.NewTooManyRequests(fmt.Sprintf("unable to create workspace %q: %v; try again", obj.Name, err), 1)
	}
	if exceeded == nil {
		return nil
	}
	return rules.Forbid(a, "exceeded quota: the limit of %s is reached, which is %s=%d: delete workspaces that are not needed, or ask the administrator of %s for a higher limit",
		exceeded.Path, exceeded.Annotation, exceeded.Limit, exceeded.Path)
}
