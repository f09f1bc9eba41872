package dependencies

import (
	"context"

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

// FindUnreleasedRestore returns the name of the Restore that has filled an installation and is not released, or "". One that was deleted, or that
// has failed because the installation had started, holds nothing.
func FindUnreleasedRestore(ctx context.Context, c apply.Cluster, root *operatorv1alpha1.RootShard) (string, error) {
	name := root.Annotations[operatorv1alpha1.AnnotationRestore]
	if name == "" {
		return "", nil
	}
	restore, err := apply.Get[operatorv1alpha1.Restore](ctx, c, root.Namespace, name)
	if err != nil || restore == nil || restore.Spec.Release || restore.Spec.Workspace != nil || restore.Spec.RootShardRef.Name != root.Name || restore.Status.Phase != operatorv1alpha1.RestorePhaseCompleted {
		return "", err
	}
	return name, nil
}
