package tenancy

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// maxNameAttempts bounds how many names are tried for one logical cluster. A single collision is all but impossible.
const maxNameAttempts = 5

// schedule schedules a workspace without a logical cluster in two phases: it first stores shard and name in the
// workspace, and then creates the LogicalCluster with that name. spec.cluster is set afterwards, with the write at the
// end of the reconcile. A refusal is a fact, not an error.
func (c *workspaceController) schedule(ctx context.Context, scope *workspaceScope) error {
	if scope.workspace.Spec.Cluster != "" {
		return nil
	}
	if found, err := c.findCreatedCluster(ctx, scope); found || err != nil {
		return err
	}
	own, err := c.cfg.Health.Current(ctx)
	if err != nil {
		return err
	}
	shard, refused := selectShard(scope.workspace, scope.shards, c.choose(own))
	if refused != nil {
		scope.facts.refused = refused
		return nil
	}
	template, aliases, err := newLogicalCluster(ctx, c.cfg.Types, scope.parent, scope.workspace, shard.Name)
	if errors.Is(err, workspacetype.ErrUnresolvable) {
		scope.facts.refused = unschedulable("%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	if shard.Name != c.cfg.ShardName {
		return c.scheduleRemote(ctx, scope, shard)
	}
	selector, err := placementrules.Selector(scope.workspace)
	if err != nil {
		scope.facts.refused = unschedulable("%v", err)
		return nil
	}
	if err := c.scheduler.Admit(shard, selector, own); err != nil {
		return c.refuse(ctx, scope, shard, err)
	}
	return c.createHere(ctx, scope, shard, template, aliases)
}

// refuse schedules a workspace on another shard, because this one does not accept it any more, unless an earlier
// reconcile has created its logical cluster here: a workspace has only one.
func (c *workspaceController) refuse(ctx context.Context, scope *workspaceScope, shard *corev1alpha1.Shard, reason error) error {
	name, reserved := placement.Cluster(scope.workspace)
	if !reserved {
		c.scheduler.Cancel(shard.Name) // chosen by this reconcile
		scope.facts.refused = unschedulable("%v", reason)
		return nil
	}
	cluster, err := c.clusterOf(ctx, scope, name.String())
	if err != nil {
		return err
	}
	if cluster != nil {
		scope.workspace.Spec.Cluster, scope.facts.cluster = name.String(), cluster
		return nil
	}
	scope.facts.refused = unschedulable("%v", reason)
	return c.reschedule(ctx, scope, shard)
}

// createHere stores the placement on this shard, and creates the LogicalCluster.
func (c *workspaceController) createHere(ctx context.Context, scope *workspaceScope, shard *corev1alpha1.Shard, template *corev1alpha1.LogicalCluster, aliases []workspacetype.Resolved) error {
	defer func() {
		if scope.created == nil {
			c.scheduler.Release(shard.Name)
		}
	}()
	for range maxNameAttempts {
		name, err := c.reserve(ctx, scope, shard)
		if err != nil {
			return err
		}
		setMapEntry(&template.Annotations, corev1alpha1.ResourceBindingsAnnotationKey, c.cfg.Defaults.Reservations(ctx, name, aliases))
		cluster, err := c.createCluster(ctx, scope, name, template)
		if err != nil {
			return err
		}
		if cluster != nil {
			scope.workspace.Spec.Cluster = name.String()
			scope.facts.cluster = cluster
			return nil
		}
		delete(scope.workspace.Annotations, tenancyv1alpha1.WorkspaceClusterAnnotationKey) // used by another workspace: reserve another
	}
	return fmt.Errorf("scheduling workspace %q: %d names of logical clusters in a row were already used", scope.workspace.Name, maxNameAttempts)
}

// findCreatedCluster returns the LogicalCluster that an earlier reconcile has created on this shard, if the watch cache
// has it.
func (c *workspaceController) findCreatedCluster(ctx context.Context, scope *workspaceScope) (bool, error) {
	name, reserved := placement.Cluster(scope.workspace)
	if !reserved || c.isRemote(scope) {
		return false, nil
	}
	cluster, err := c.clusters.Get(logicalcluster.With(ctx, name), "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) || err == nil && !owns(scope, cluster) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading logical cluster %q: %w", name, err)
	}
	scope.workspace.Spec.Cluster, scope.facts.cluster = name.String(), cluster
	return true, nil
}

// reserve stores the shard and the name of the logical cluster in the workspace, unless they are stored, and returns
// the name.
func (c *workspaceController) reserve(ctx context.Context, scope *workspaceScope, shard *corev1alpha1.Shard) (logicalcluster.Name, error) {
	workspace := scope.workspace
	name := setPlacement(workspace, shard)
	if !sameExceptStatus(scope.stored, workspace) {
		return name, c.updateWorkspace(ctx, scope)
	}
	// An earlier reconcile has stored them. The watch cache may be stale, and a LogicalCluster must not be created for a
	// workspace that was deleted.
	latest, err := c.workspaces.GetLatest(ctx, "", workspace.Name)
	if err != nil {
		return name, fmt.Errorf("reading workspace %q again: %w", workspace.Name, err)
	}
	if latest.UID != workspace.UID || latest.ResourceVersion != workspace.ResourceVersion {
		return name, apierrors.NewConflict(workspaces, workspace.Name, errors.New("the workspace has changed meanwhile"))
	}
	return name, nil
}

// setPlacement sets the shard and the name of the logical cluster of a workspace. A name that was reserved before is
// kept.
func setPlacement(workspace *tenancyv1alpha1.Workspace, shard *corev1alpha1.Shard) logicalcluster.Name {
	name, err := logicalcluster.ParseName(workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey])
	if err != nil || name.IsSystem() {
		name = logicalcluster.RandomName()
	}
	setMapEntry(&workspace.Annotations, tenancyv1alpha1.WorkspaceClusterAnnotationKey, name.String())
	setShard(workspace, shard.Name)
	setRegion(workspace, shard)
	controllerutil.AddFinalizer(workspace, corev1alpha1.LogicalClusterFinalizer)
	return name
}

// createCluster creates the LogicalCluster with the name, or returns the one that an earlier reconcile has created. It
// returns nil if another workspace uses the name.
func (c *workspaceController) createCluster(ctx context.Context, scope *workspaceScope, name logicalcluster.Name, template *corev1alpha1.LogicalCluster) (*corev1alpha1.LogicalCluster, error) {
	cluster := template.DeepCopy()
	err := c.cfg.Clients.Typed.Create(logicalcluster.With(ctx, name), cluster)
	if apierrors.IsAlreadyExists(err) {
		return c.clusterOf(ctx, scope, name.String())
	}
	if err != nil {
		return nil, fmt.Errorf("creating logical cluster %q of workspace %q: %w", name, scope.workspace.Name, err)
	}
	scope.created = cluster
	return cluster, nil
}

// newLogicalCluster returns the desired LogicalCluster of a workspace on a shard, and its type with all types it
// extends.
func newLogicalCluster(ctx context.Context, types *workspacetype.Resolver, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace, shard string) (*corev1alpha1.LogicalCluster, []workspacetype.Resolved, error) {
	leaf, err := typeOf(ctx, types, parent, workspace)
	if err != nil {
		return nil, nil, err
	}
	aliases, err := types.Aliases(ctx, leaf)
	if err != nil {
		return nil, nil, err
	}
	path, err := pathOf(ctx, types, parent, workspace)
	if err != nil {
		return nil, nil, err
	}
	createdBy, err := creator(workspace.Annotations)
	if err != nil {
		return nil, nil, fmt.Errorf("workspace %q: %w", workspace.Name, err)
	}
	owner := placement.Owner(parent, workspace)
	cluster := &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName,
			Annotations: map[string]string{
				corev1alpha1.LogicalClusterPathAnnotationKey: path.String(),
				corev1alpha1.LogicalClusterTypeAnnotationKey: leaf.Reference.String(),
				corev1alpha1.ShardAnnotationKey:              shard,
			},
			Finalizers: []string{corev1alpha1.LogicalClusterDeletionFinalizer},
		},
		Spec: corev1alpha1.LogicalClusterSpec{
			Owner:        &owner,
			CreatedBy:    createdBy,
			Initializers: workspacetype.Initializers(aliases),
			Terminators:  workspacetype.Terminators(aliases),
		},
	}
	for _, key := range []string{tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey, corev1alpha1.RequiredGroupsAnnotationKey} {
		if value, ok := workspace.Annotations[key]; ok {
			cluster.Annotations[key] = value
		}
	}
	return cluster, aliases, nil
}

func typeOf(ctx context.Context, types *workspacetype.Resolver, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) (workspacetype.Resolved, error) {
	var ref workspacetype.Reference // of the default type, where admission did not set one
	if specType := workspace.Spec.Type; specType != nil {
		var err error
		if ref, err = workspacetype.NewReference(specType.Path, string(specType.Name)); err != nil {
			return workspacetype.Resolved{}, fmt.Errorf("%w: spec.type of workspace %q: %w", workspacetype.ErrUnresolvable, workspace.Name, err)
		}
	}
	return types.Resolve(ctx, parent, ref)
}

// pathOf returns the canonical path of a workspace.
func pathOf(ctx context.Context, types *workspacetype.Resolver, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) (logicalcluster.Path, error) {
	path, err := types.CanonicalPath(ctx, parent)
	if err != nil {
		return logicalcluster.Path{}, fmt.Errorf("finding the path of the parent of workspace %q: %w", workspace.Name, err)
	}
	return path.Join(workspace.Name), nil
}
