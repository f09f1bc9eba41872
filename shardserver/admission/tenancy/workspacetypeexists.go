package tenancy

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// workspaceTypeExists sets the type of new workspaces, and checks that the creator may use the type and that the type
// is allowed below the parent. The type is immutable.
type workspaceTypeExists struct {
	*admission.Handler
	types      *workspacetype.Resolver
	permission rules.Permission
}

// NewWorkspaceTypeExists returns the plug-in tenancy.kcp.io/WorkspaceTypeExists.
func NewWorkspaceTypeExists(config rules.Config) admission.Interface {
	return &workspaceTypeExists{
		Handler:    admission.NewHandler(admission.Create),
		types:      config.Types,
		permission: rules.NewPermission(config),
	}
}

// Admit resolves the type and adds its labels.
func (w *workspaceTypeExists) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj, parent, err := w.workspaceToCreate(ctx, a)
	if obj == nil {
		return err
	}
	ref, err := typeReference(a, obj)
	if err != nil {
		return err
	}
	resolved, err := w.types.Resolve(ctx, parent, ref)
	if err != nil {
		return toAPIError(a, err)
	}
	if ref.Name == "" || ref.Path.Empty() {
		obj.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{
			Name: tenancyv1alpha1.WorkspaceTypeName(resolved.Reference.Name),
			Path: resolved.Reference.Path.String(),
		}
	}
	addLabels(obj, resolved.Spec.AdditionalWorkspaceLabels)
	return nil
}

// Validate checks the permission to use the type and the constraints of the types of parent and child.
func (w *workspaceTypeExists) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj, parent, err := w.workspaceToCreate(ctx, a)
	if obj == nil {
		return err
	}
	ref, err := typeReference(a, obj)
	if err != nil {
		return err
	}
	if ref.Name == "" || ref.Path.Empty() {
		return rules.Forbid(a, "spec.type must have a name and a path")
	}
	leaf, err := w.types.Get(ctx, ref)
	if err != nil {
		return toAPIError(a, err)
	}
	aliases, err := w.types.Aliases(ctx, leaf)
	if err != nil {
		return toAPIError(a, err)
	}
	if err := w.validateUse(ctx, a, aliases); err != nil {
		return err
	}
	parentType, err := w.types.GetByCluster(ctx, parent)
	if err != nil {
		return toAPIError(a, err)
	}
	parentAliases, err := w.types.Aliases(ctx, parentType)
	if err != nil {
		return toAPIError(a, err)
	}
	return toAPIError(a, w.types.CheckLimits(ctx, aliases, parentAliases))
}

// workspaceToCreate returns the workspace and its parent cluster, or no workspace for other requests and for mounts.
func (w *workspaceTypeExists) workspaceToCreate(ctx context.Context, a admission.Attributes) (*tenancyv1alpha1.Workspace, logicalcluster.Name, error) {
	if a.GetResource().GroupResource() != rules.Workspaces || a.GetSubresource() != "" || a.GetOperation() != admission.Create {
		return nil, logicalcluster.Name{}, nil
	}
	parent, ok := logicalcluster.From(ctx)
	if !ok {
		return nil, parent, apierrors.NewInternalError(rules.ErrNoCluster)
	}
	obj, err := rules.ObjectOf[*tenancyv1alpha1.Workspace](a.GetObject())
	if err != nil {
		return nil, parent, err
	}
	if obj.Spec.Mount != nil {
		return nil, parent, nil // a mount has no type
	}
	return obj, parent, nil
}

func (w *workspaceTypeExists) validateUse(ctx context.Context, a admission.Attributes, aliases []workspacetype.Resolved) error {
	for _, alias := range aliases {
		allowed, err := w.permission.IsAllowed(ctx, a, alias.Cluster, "use", tenancyv1alpha1.SchemeGroupVersion.Group,
			tenancyv1alpha1.SchemeGroupVersion.Version, rules.WorkspaceTypes.Resource, alias.Name)
		if err != nil {
			return rules.Forbid(a, "unable to determine access to workspace type %q: %w", alias.Reference, err)
		}
		if !allowed {
			return rules.Forbid(a, "unable to use workspace type %q: missing verb=use permission on workspacetype", alias.Reference)
		}
	}
	return nil
}

func typeReference(a admission.Attributes, obj *tenancyv1alpha1.Workspace) (workspacetype.Reference, error) {
	if obj.Spec.Type == nil {
		return workspacetype.Reference{}, nil
	}
	ref, err := workspacetype.NewReference(obj.Spec.Type.Path, string(obj.Spec.Type.Name))
	if err != nil {
		return ref, rules.Forbid(a, "spec.type: %w", err)
	}
	return ref, nil
}

func addLabels(obj *tenancyv1alpha1.Workspace, additional map[string]string) {
	if len(additional) == 0 {
		return
	}
	labels := maps.Clone(additional)
	maps.Copy(labels, obj.Labels) // labels of the user take precedence
	obj.Labels = labels
}

// toAPIError converts an error of type resolution to a response: 403 for errors that the user can correct.
func toAPIError(a admission.Attributes, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, workspacetype.ErrUnresolvable), errors.Is(err, workspacetype.ErrNotAllowed):
		return rules.Forbid(a, "%w", err)
	}
	return apierrors.NewInternalError(fmt.Errorf("resolving the type of workspace %q: %w", a.GetName(), err))
}
