package virtualworkspace

import (
	"context"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// findTarget resolves the shard that a server stands beside. The shard is nil where the result is not fine.
func (r *Reconciler) findTarget(ctx context.Context, virtualWorkspace *operatorv1alpha1.VirtualWorkspace) (*desired.Shard, status.Result, error) {
	const condition = operatorv1alpha1.ConditionReferenceValid
	spec := virtualWorkspace.Spec.Target
	switch {
	case spec.RootShardRef != nil && spec.RootShardRef.Name != "":
		ref := operatorv1alpha1.RootShardReference{Reference: spec.RootShardRef}
		root, result, err := shardbase.RootShard(ctx, r.Cluster, virtualWorkspace.Namespace, ref)
		if err != nil {
			return nil, status.Result{}, err
		}
		if root == nil {
			return nil, status.Wait(condition, operatorv1alpha1.ReasonReferenceNotFound, "%s", result.Message), nil
		}
		target := desired.NewRootShard(root)
		return &target, status.OK(condition, operatorv1alpha1.ReasonReferenceValid, "RootShard %s is there", root.Name), nil
	case spec.ShardRef != nil && spec.ShardRef.Name != "":
		shard, err := apply.Get[operatorv1alpha1.Shard](ctx, r.Cluster, virtualWorkspace.Namespace, spec.ShardRef.Name)
		if err != nil {
			return nil, status.Result{}, err
		}
		if shard == nil {
			return nil, status.Wait(condition, operatorv1alpha1.ReasonReferenceNotFound,
				"Shard %s does not exist in namespace %s: create it, or correct target.shardRef", spec.ShardRef.Name, virtualWorkspace.Namespace), nil
		}
		root, result, err := shardbase.RootShard(ctx, r.Cluster, virtualWorkspace.Namespace, shard.Spec.RootShard)
		if err != nil {
			return nil, status.Result{}, err
		}
		if root == nil {
			return nil, status.Wait(condition, operatorv1alpha1.ReasonReferenceNotFound, "of Shard %s: %s", shard.Name, result.Message), nil
		}
		target := desired.NewShard(shard, root)
		return &target, status.OK(condition, operatorv1alpha1.ReasonReferenceValid, "Shard %s is there", shard.Name), nil
	}
	return nil, status.Stall(condition, operatorv1alpha1.ReasonReferenceNotFound, "target names nothing: set rootShardRef or shardRef"), nil
}
