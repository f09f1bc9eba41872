package shardbase

import (
	"context"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/status"
)

// RootShard resolves the reference of an object to its installation. The RootShard is nil where the result is not fine.
func RootShard(ctx context.Context, c apply.Cluster, namespace string, ref operatorv1alpha1.RootShardReference) (*operatorv1alpha1.RootShard, status.Result, error) {
	const condition = operatorv1alpha1.ConditionRootShard
	// The schema admits an object that names no RootShard.
	if ref.Reference == nil || ref.Reference.Name == "" {
		return nil, status.Stall(condition, operatorv1alpha1.ReasonInvalidReference, "rootShard.ref.name is empty: name a RootShard of this namespace"), nil
	}
	name := ref.Reference.Name
	root, err := apply.Get[operatorv1alpha1.RootShard](ctx, c, namespace, name)
	if err != nil {
		return nil, status.Result{}, err
	}
	if root == nil || root.DeletionTimestamp != nil {
		return nil, status.Wait(condition, operatorv1alpha1.ReasonInvalidReference,
			"RootShard %s does not exist in namespace %s: create it, or correct rootShard.ref.name", name, namespace), nil
	}
	return root, status.OK(condition, operatorv1alpha1.ReasonValid, "RootShard %s is there", name), nil
}
