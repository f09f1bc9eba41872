package shard

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/validation"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=deletecollection

const (
	// forceTimeout is how long a forced deletion waits for a root shard that does not respond to remove the registration.
	forceTimeout = 2 * time.Minute
	// finalizeInterval is how often a deletion that waits is retried: the events that it waits for happen inside the installation, where
	// the operator does not watch.
	finalizeInterval = 10 * time.Second
)

// finalize removes the finalizer of a Shard whose deletion loses no data: it has no workspaces, or its installation does not exist, or
// the user forces it. Until then the Shard remains, and no new workspaces are scheduled to it.
func (s *shardScope) finalize(ctx context.Context) error {
	s.Report.Requeue = finalizeInterval
	switch {
	case !controllerutil.ContainsFinalizer(s.shard, operatorv1alpha1.FinalizerShard):
		return reconcile.ErrFinalized // finalizers of others remain; owner references delete the objects of the Shard
	case s.root == nil, validation.ShardName(s.shard, s.root).State == status.Stalled:
		return s.removeFinalizer(ctx) // without an installation, or never set up because the name belongs to another shard
	case s.shard.Annotations[operatorv1alpha1.AnnotationForceDelete] == "true":
		return s.forceFinalize(ctx)
	case s.Reference.State != status.Satisfied: // the installation exists, and how to reach it is not known yet
		s.Report.Set(status.Wait(operatorv1alpha1.ConditionWorkspacesGone, "RootShardUnavailable", "deletion waits: %s", s.Reference.Message))
		s.Deployment.ReportLive()
		return reconcile.ErrStop
	}
	result := s.unregisterIfEmpty(ctx)
	if result.State == status.Satisfied {
		return s.removeFinalizer(ctx)
	}
	s.Report.Set(result)
	if isDeletedInForeground(s.shard) {
		return reconcile.ErrStop
	}
	return nil
}

// isDeletedInForeground reports whether the garbage collector is deleting the dependents of an object first. Creating them again during
// that has no effect; after their deletion the operator creates them again, with their data.
func isDeletedInForeground(object client.Object) bool {
	return controllerutil.ContainsFinalizer(object, metav1.FinalizerDeleteDependents)
}

// unregisterIfEmpty removes the shard from the installation when it has no workspaces. It cordons the shard first: a workspace that is
// scheduled after the count would be lost. A shard that was never registered has none.
func (s *shardScope) unregisterIfEmpty(ctx context.Context) status.Result {
	const condition = operatorv1alpha1.ConditionWorkspacesGone
	const force = "or set the annotation " + operatorv1alpha1.AnnotationForceDelete + "=true, and what is on the shard is lost"
	registered, err := s.registry.Registered(ctx, s.root, s.shard)
	if err == nil && registered {
		err = s.registry.Cordon(ctx, s.root, s.shard)
	}
	switch {
	case err != nil:
		return status.Wait(condition, "RootShardUnavailable", "deletion waits for RootShard %s to cordon the shard: %v; repair it, %s", s.root.Name, err, force)
	case !registered:
		return status.OK(condition, "NeverRegistered", "the shard is not registered in the installation")
	case isDeletedInForeground(s.shard):
		return status.Wait(condition, "ServersGoDown", "deletion in the foreground stops the servers before the workspaces on the shard are counted; the servers are created again")
	}
	if !s.shard.Spec.Drain && s.hasDrain() && !s.stopDrain(ctx) {
		return status.Wait(condition, "Migrating", "deletion waits for the end of the drain, which was switched off; condition Drained has the reasons; wait, %s", force)
	}
	before := s.awaitMigrations(ctx, force) // before the count: what arrives meanwhile is counted
	count, err := s.registry.LogicalClusters(ctx, s.root, s.shard)
	switch {
	case err != nil && s.stops: // they cannot be counted, and a Restore that ends restores them
		return status.Wait(condition, "ShardUnavailable", "deletion waits because the shard is stopped, and its workspaces cannot be counted: %s. Wait for it, remove the annotation %s, %s", s.awaits.Message, operatorv1alpha1.AnnotationRestore, force)
	case err != nil:
		return status.Wait(condition, "ShardUnavailable", "deletion waits because the workspaces on the shard cannot be counted: %v; repair it, %s", err, force)
	case s.shard.Spec.Drain:
		if result := s.drainForDeletion(ctx, count, force); result.State != status.Satisfied {
			return result
		}
	case count > 0:
		return status.Stall(condition, "HoldsWorkspaces", "deletion waits for %s on the shard: delete them, %s", formatWorkspaceCount(count), force)
	}
	for _, migrations := range []status.Result{before, s.awaitMigrations(ctx, force)} {
		if migrations.Type != "" {
			return migrations
		}
	}
	if err := s.registry.Unregister(ctx, s.root, s.shard); err != nil {
		return status.Wait(condition, "RootShardUnavailable", "deletion waits for RootShard %s to remove the shard: %v; repair it, %s", s.root.Name, err, force)
	}
	return status.OK(condition, "Empty", "no workspace is on the shard")
}

// forceFinalize removes the shard from the installation with all its logical clusters. It waits for the root shard only for a limited
// time.
func (s *shardScope) forceFinalize(ctx context.Context) error {
	if s.shard.Spec.Drain || s.hasDrain() {
		_, _ = s.registry.StopDrain(ctx, s.root, s.shard) // as far as possible: nobody will finish what needs the shard
	}
	err := s.registry.Unregister(ctx, s.root, s.shard)
	if err == nil {
		return s.removeFinalizer(ctx)
	}
	if s.now.Sub(s.shard.DeletionTimestamp.Time) > forceTimeout {
		s.Recorder.Eventf(s.shard, nil, corev1.EventTypeWarning, "RegistrationLeftBehind", "Delete",
			"Shard %s could not be removed inside the installation of RootShard %s: %v", s.shard.Name, s.root.Name, err)
		return s.removeFinalizer(ctx)
	}
	s.Report.Set(status.Wait(operatorv1alpha1.ConditionWorkspacesGone, "RootShardUnavailable",
		"deletion is forced and waits %s for RootShard %s to remove the shard: %v", forceTimeout, s.root.Name, err))
	return nil
}

// removeFinalizer deletes the volumes of the etcd, which are retained in all other cases, and completes the deletion.
func (s *shardScope) removeFinalizer(ctx context.Context) error {
	volumes := client.MatchingLabels(etcd.ShardVolumeClaimLabels(s.shard.Name))
	if err := s.Cluster.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(s.shard.Namespace), volumes); err != nil {
		return fmt.Errorf("deleting the volumes of the etcd of Shard %s: %w", s.shard.Name, err)
	}
	if err := s.Cluster.SetFinalizer(ctx, s.shard, operatorv1alpha1.FinalizerShard, false); err != nil {
		return err
	}
	return reconcile.ErrFinalized
}

func formatWorkspaceCount(count int) string {
	if count == 1 {
		return "1 workspace"
	}
	return fmt.Sprintf("%d workspaces", count)
}
