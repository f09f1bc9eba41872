package dependencies

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/status"
)

// AwaitRestore returns why an installation does not start before a Restore is completed; without a type, it may start. An installation that has
// started never waits: a Restore would not touch it, and its servers would not be reconciled.
func AwaitRestore(ctx context.Context, c apply.Cluster, root *operatorv1alpha1.RootShard) (status.Result, error) {
	name := root.Annotations[operatorv1alpha1.AnnotationRestore]
	if name == "" || root.Status.Etcd != nil && root.Status.Etcd.ClusterID != "" {
		return status.Result{}, nil
	}
	const condition = operatorv1alpha1.ConditionAvailable
	restore, err := apply.Get[operatorv1alpha1.Restore](ctx, c, root.Namespace, name)
	switch {
	case err != nil:
		return status.Result{}, err
	case restore == nil:
		return status.Wait(condition, operatorv1alpha1.ReasonAwaitsRestore, "the annotation %s of RootShard %s names Restore %s, which does not exist: create it; or remove the annotation to start without data",
			operatorv1alpha1.AnnotationRestore, root.Name, name), nil
	case restore.Spec.Workspace != nil:
		return status.Wait(condition, operatorv1alpha1.ReasonAwaitsRestore, "the annotation %s of RootShard %s names Restore %s, which restores a workspace of an installation that runs: name one without spec.workspace; or remove the annotation to start without data",
			operatorv1alpha1.AnnotationRestore, root.Name, name), nil
	case restore.Status.Phase != operatorv1alpha1.RestorePhaseCompleted || restore.Spec.RootShardRef.Name != root.Name:
		return status.Wait(condition, operatorv1alpha1.ReasonAwaitsRestore, "Restore %s fills the etcds of RootShard %s before they start: see its conditions", name, root.Name), nil
	}
	if restore.Status.StoppedAt.Before(&root.CreationTimestamp) {
		return status.Wait(condition, operatorv1alpha1.ReasonAwaitsRestore, "Restore %s has filled an installation that was there before RootShard %s: create another Restore, and name it in the annotation %s; or remove the annotation to start without data",
			name, root.Name, operatorv1alpha1.AnnotationRestore), nil
	}
	return status.Result{}, nil
}

// FindUnreleasedRestore returns the name of a Restore that has filled an installation or one of its shards and is not released, or "". One that was
// deleted, or that has failed because the installation had started, holds nothing.
func FindUnreleasedRestore(ctx context.Context, c apply.Cluster, root *operatorv1alpha1.RootShard) (string, error) {
	list := &operatorv1alpha1.RestoreList{}
	if err := c.List(ctx, list, client.InNamespace(root.Namespace)); err != nil {
		return "", err
	}
	for i := range list.Items {
		restore := &list.Items[i]
		isOfShard, isOfAll := restore.Spec.Shard != nil, restore.Name == root.Annotations[operatorv1alpha1.AnnotationRestore] && restore.Spec.Workspace == nil
		if (isOfShard || isOfAll) && restore.Spec.RootShardRef.Name == root.Name && restore.Status.Phase == operatorv1alpha1.RestorePhaseCompleted && !restore.Spec.Release {
			return restore.Name, nil
		}
	}
	return "", nil
}

// ShardRestore is what Restores of a Shard do to it. Results without a type do nothing.
type ShardRestore struct {
	Stopped status.Result // the server and the etcd of the shard are deleted
	Held    status.Result // a shard that is not there does not start
	// Replaced is the ID of the etcd cluster whose data a completed Restore has replaced.
	Replaced string
}

// ObserveShardRestore returns what Restores do to a Shard. One that has started and has not ended stops the shard, whether its annotation still names
// it or not: the controller of Restores ends one that is withdrawn, and between the two no server writes into the volumes. One that has not started stops
// nothing, because it may refuse the backup, but a shard that names it and has nothing that runs does not start before.
func ObserveShardRestore(ctx context.Context, c apply.Cluster, shard *operatorv1alpha1.Shard, runs bool) (ShardRestore, error) {
	const condition = operatorv1alpha1.ConditionAvailable
	root := shard.Spec.RootShard.Reference
	if root == nil {
		return ShardRestore{}, nil
	}
	list := &operatorv1alpha1.RestoreList{}
	if err := c.List(ctx, list, client.InNamespace(shard.Namespace)); err != nil {
		return ShardRestore{}, err
	}
	var named *operatorv1alpha1.Restore
	for i := range list.Items {
		restore := &list.Items[i]
		if restore.Spec.Shard == nil || restore.Spec.Shard.Name != shard.Name || restore.Spec.RootShardRef.Name != root.Name {
			continue
		}
		if restore.Status.StartedAt != nil && !isFinal(restore) {
			return ShardRestore{Stopped: ShardStopped(restore)}, nil
		}
		if restore.Name == shard.Annotations[operatorv1alpha1.AnnotationRestore] {
			named = restore
		}
	}
	switch {
	case named == nil:
	case named.Status.StartedAt == nil && !isFinal(named) && !runs && shard.DeletionTimestamp == nil:
		return ShardRestore{Held: status.Wait(condition, operatorv1alpha1.ReasonAwaitsRestore,
			"Restore %s fills the etcd of this shard before it starts: see its conditions; or remove the annotation %s to start without it", named.Name, operatorv1alpha1.AnnotationRestore)}, nil
	case named.Status.StartedAt == nil:
	case named.Status.Phase == operatorv1alpha1.RestorePhaseFailed:
		return ShardRestore{Stopped: status.Wait(condition, operatorv1alpha1.ReasonAwaitsRestore,
			"Restore %s has stopped this shard, and has failed: see its conditions, create another Restore, and name it in the annotation %s", named.Name, operatorv1alpha1.AnnotationRestore)}, nil
	case named.Status.Shard != nil:
		return ShardRestore{Replaced: named.Status.Shard.ReplacedEtcdClusterID}, nil
	}
	return ShardRestore{}, nil
}

func isFinal(restore *operatorv1alpha1.Restore) bool {
	return restore.Status.Phase == operatorv1alpha1.RestorePhaseCompleted || restore.Status.Phase == operatorv1alpha1.RestorePhaseFailed
}

// ShardStopped is the result about a Shard that is stopped while a Restore replaces its data.
func ShardStopped(restore *operatorv1alpha1.Restore) status.Result {
	return status.Wait(operatorv1alpha1.ConditionAvailable, operatorv1alpha1.ReasonAwaitsRestore, "Restore %s (%s) replaces the data of this shard: see its conditions", restore.Name, restore.UID)
}
