package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/ladder"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=deletecollection

const (
	// forceTimeout is how long a forced deletion waits for a root shard that does not answer, to remove the registration
	// there.
	forceTimeout    = 2 * time.Minute
	deletionRequeue = 10 * time.Second
)

// errGone ends the ladder of a Shard that was let go: there is no status to write any more.
var errGone = errors.New("the Shard was let go")

// hold puts the finalizer on a Shard before anything is made for it.
func (r *Reconciler) hold(ctx context.Context, s *scope) error {
	if s.shard.DeletionTimestamp != nil {
		return nil
	}
	return r.Cluster.SetFinalizer(ctx, s.shard, operatorv1alpha1.FinalizerShard, true)
}

// deletion lets a Shard go that nobody would miss: one without workspaces, or of an installation that is gone, or that the
// user gives up. Until then the Shard stays as it is, and takes no new workspaces.
func (r *Reconciler) deletion(ctx context.Context, s *scope) error {
	if s.shard.DeletionTimestamp == nil {
		return nil
	}
	if !controllerutil.ContainsFinalizer(s.shard, operatorv1alpha1.FinalizerShard) {
		return errGone // others hold it; what is made for it goes with it
	}
	if s.root == nil || shardbase.ValidateShardName(s.shard, s.root).State == status.Stalled {
		return r.removeFinalizer(ctx, s) // the installation is gone, or nothing was ever made for the Shard, whose name is another's
	}
	if s.shard.Annotations[operatorv1alpha1.AnnotationForceDelete] == "true" {
		return r.forceFinalize(ctx, s)
	}
	result := r.unregisterIfEmpty(ctx, s)
	if result.State == status.Satisfied {
		return r.removeFinalizer(ctx, s)
	}
	s.report.Set(result)
	if deletedInForeground(s.shard) {
		return ladder.ErrStop
	}
	return nil
}

// deletedInForeground says whether the cluster is taking down what was made for the Shard, as it does of a deletion in the foreground
// before anything else. To make it anew meanwhile would be in vain; afterwards it is, with the data.
func deletedInForeground(shard *operatorv1alpha1.Shard) bool {
	return controllerutil.ContainsFinalizer(shard, metav1.FinalizerDeleteDependents)
}

// unregisterIfEmpty takes the shard out of the installation once nothing is on it. New workspaces are kept off first: one that is
// placed after the count would be lost. A shard that the installation does not know never had any.
func (r *Reconciler) unregisterIfEmpty(ctx context.Context, s *scope) status.Result {
	const condition = operatorv1alpha1.ConditionWorkspacesGone
	const force = "or set the annotation " + operatorv1alpha1.AnnotationForceDelete + "=true, and what is on the shard is lost"
	known, err := r.Shards.Registered(ctx, s.root, s.shard)
	if err == nil && known {
		err = r.Shards.Cordon(ctx, s.root, s.shard)
	}
	switch {
	case err != nil:
		return status.Wait(condition, "RootShardUnavailable", "deletion waits for RootShard %s, which does not take the shard out of service: %v; see to it, %s", s.root.Name, err, force)
	case !known:
		return status.OK(condition, "NeverRegistered", "the installation does not know the shard")
	case deletedInForeground(s.shard):
		return status.Wait(condition, "ServersGoDown", "deletion in the foreground takes the servers down before what is on the shard is counted; then they come back for that")
	}
	count, err := r.Shards.LogicalClusters(ctx, s.root, s.shard)
	switch {
	case err != nil:
		return status.Wait(condition, "ShardUnavailable", "deletion waits because it cannot be told whether workspaces are on the shard: %v; see to it, %s", err, force)
	case count > 0:
		return status.Stall(condition, "HoldsWorkspaces", "deletion waits for %s on the shard: delete them, %s", workspaces(count), force)
	}
	if err := r.Shards.Unregister(ctx, s.root, s.shard); err != nil {
		return status.Wait(condition, "RootShardUnavailable", "deletion waits for RootShard %s, which does not remove the shard: %v; see to it, %s", s.root.Name, err, force)
	}
	return status.OK(condition, "Empty", "no workspace is on the shard")
}

// forceFinalize takes the shard out of the installation with all that is on it. It does not wait for ever for the root shard.
func (r *Reconciler) forceFinalize(ctx context.Context, s *scope) error {
	err := r.Shards.Unregister(ctx, s.root, s.shard)
	if err == nil {
		return r.removeFinalizer(ctx, s)
	}
	if s.now.Sub(s.shard.DeletionTimestamp.Time) > forceTimeout {
		r.Recorder.Eventf(s.shard, nil, corev1.EventTypeWarning, "RegistrationLeftBehind", "Delete",
			"Shard %s could not be removed inside the installation of RootShard %s: %v", s.shard.Name, s.root.Name, err)
		return r.removeFinalizer(ctx, s)
	}
	s.report.Set(status.Wait(operatorv1alpha1.ConditionWorkspacesGone, "RootShardUnavailable",
		"deletion is forced and waits %s for RootShard %s to remove the shard: %v", forceTimeout, s.root.Name, err))
	return nil
}

// removeFinalizer ends the Shard: what was made for it goes with it, and the volumes of its etcd, which stay in all other cases.
func (r *Reconciler) removeFinalizer(ctx context.Context, s *scope) error {
	volumes := client.MatchingLabels(etcd.ShardVolumeClaimLabels(s.shard.Name))
	if err := r.Cluster.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(s.shard.Namespace), volumes); err != nil {
		return fmt.Errorf("deleting the volumes of the etcd of Shard %s: %w", s.shard.Name, err)
	}
	if err := r.Cluster.SetFinalizer(ctx, s.shard, operatorv1alpha1.FinalizerShard, false); err != nil {
		return err
	}
	return errGone
}

func workspaces(count int) string {
	if count == 1 {
		return "1 workspace"
	}
	return fmt.Sprintf("%d workspaces", count)
}
