package virtualworkspace

import (
	"context"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
)

// findTarget resolves the shard that a server runs beside. It is nil unless the result is satisfied.
func findTarget(ctx context.Context, c apply.Cluster, virtualWorkspace *operatorv1alpha1.VirtualWorkspace) (*desired.Shard, status.Result, error) {
	const condition = operatorv1alpha1.ConditionReferenceValid
	spec := virtualWorkspace.Spec.Target
	switch {
	case spec.RootShardRef != nil && spec.RootShardRef.Name != "":
		ref := operatorv1alpha1.RootShardReference{Reference: spec.RootShardRef}
		root, result, err := dependencies.ResolveRootShard(ctx, c, virtualWorkspace.Namespace, ref)
		if err != nil {
			return nil, status.Result{}, err
		}
		if root == nil {
			return nil, status.Wait(condition, operatorv1alpha1.ReasonReferenceNotFound, "%s", result.Message), nil
		}
		if unknown := dependencies.ResolveCAs(condition, root); unknown.Type != "" {
			return nil, unknown, nil
		}
		target := desired.NewRootShard(root)
		return &target, status.OK(condition, operatorv1alpha1.ReasonReferenceValid, "RootShard %s exists", root.Name), nil
	case spec.ShardRef != nil && spec.ShardRef.Name != "":
		shard, err := apply.Get[operatorv1alpha1.Shard](ctx, c, virtualWorkspace.Namespace, spec.ShardRef.Name)
		if err != nil {
			return nil, status.Result{}, err
		}
		if shard == nil {
			return nil, status.Wait(condition, operatorv1alpha1.ReasonReferenceNotFound,
				"Shard %s does not exist in namespace %s: create it, or correct target.shardRef", spec.ShardRef.Name, virtualWorkspace.Namespace), nil
		}
		root, result, err := dependencies.ResolveRootShard(ctx, c, virtualWorkspace.Namespace, shard.Spec.RootShard)
		if err != nil {
			return nil, status.Result{}, err
		}
		if root == nil {
			return nil, status.Wait(condition, operatorv1alpha1.ReasonReferenceNotFound, "of Shard %s: %s", shard.Name, result.Message), nil
		}
		if unknown := dependencies.ResolveCAs(condition, root); unknown.Type != "" {
			return nil, unknown, nil
		}
		target := desired.NewShard(shard, root)
		return &target, status.OK(condition, operatorv1alpha1.ReasonReferenceValid, "Shard %s exists", shard.Name), nil
	}
	return nil, status.Stall(condition, operatorv1alpha1.ReasonReferenceNotFound, "target names nothing: set rootShardRef or shardRef"), nil
}
