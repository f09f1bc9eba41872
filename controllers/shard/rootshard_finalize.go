package shard

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// addFinalizer protects the workspaces of the installation once any may exist: a RootShard that never served is deleted without
// confirmation.
func (s *rootShardScope) addFinalizer(ctx context.Context) error {
	if live := s.Deployment.Live(); live == nil || live.Status.ReadyReplicas == 0 {
		return nil
	}
	return s.Cluster.SetFinalizer(ctx, s.root, operatorv1alpha1.FinalizerRootShard, true)
}

// finalize removes the finalizer of a RootShard whose deletion loses no data: its installation has no workspaces, or the user confirms
// that they are lost. In a namespace that is being deleted the data is lost in any case, and the objects that the servers need cannot be
// created again.
func (s *rootShardScope) finalize(ctx context.Context) error {
	s.Report.Requeue = finalizeInterval
	switch {
	case !controllerutil.ContainsFinalizer(s.root, operatorv1alpha1.FinalizerRootShard):
		return reconcile.ErrFinalized // finalizers of others remain; owner references delete the objects of the RootShard
	case s.root.Annotations[operatorv1alpha1.AnnotationForceDelete] == "true":
		return s.removeFinalizer(ctx)
	}
	terminating, err := s.isNamespaceTerminating(ctx)
	if err != nil {
		return err
	}
	if terminating {
		return s.removeFinalizer(ctx)
	}
	result := s.countWorkspaces(ctx)
	if result.State == status.Satisfied {
		return s.removeFinalizer(ctx)
	}
	s.Report.Set(result)
	if isDeletedInForeground(s.root) {
		return reconcile.ErrStop
	}
	return nil
}

func (s *rootShardScope) isNamespaceTerminating(ctx context.Context) (bool, error) {
	var namespace corev1.Namespace
	if err := s.Cluster.Get(ctx, client.ObjectKey{Name: s.root.Namespace}, &namespace); err != nil {
		return false, client.IgnoreNotFound(fmt.Errorf("reading namespace %s: %w", s.root.Namespace, err))
	}
	return namespace.DeletionTimestamp != nil, nil
}

// countWorkspaces counts the workspaces of the installation. It cordons all shards first: a workspace that is scheduled after the count
// would be lost.
func (s *rootShardScope) countWorkspaces(ctx context.Context) status.Result {
	const condition = operatorv1alpha1.ConditionWorkspacesGone
	const force = "or set the annotation " + operatorv1alpha1.AnnotationForceDelete + "=true, and all workspaces of the installation are lost"
	if isDeletedInForeground(s.root) {
		return status.Wait(condition, "ServersGoDown", "deletion in the foreground stops the servers before the workspaces of the installation are counted; the servers are created again")
	}
	if err := s.registry.CordonAll(ctx, s.root); err != nil {
		return status.Wait(condition, "RootShardUnavailable", "deletion waits for the root shard to cordon the shards: %v; repair it, %s", err, force)
	}
	count, err := s.registry.Workspaces(ctx, s.root)
	switch {
	case err != nil:
		return status.Wait(condition, "RootShardUnavailable", "deletion waits because the workspaces of the installation cannot be counted: %v; repair it, %s", err, force)
	case count > 0:
		return status.Stall(condition, "HoldsWorkspaces", "deletion waits for %s of the installation: delete them, %s", formatWorkspaceCount(count), force)
	}
	return status.OK(condition, "Empty", "the installation has no workspaces")
}

// removeFinalizer deletes the volumes of an etcd that the operator runs, which the finalizer retains, and completes the deletion.
func (s *rootShardScope) removeFinalizer(ctx context.Context) error {
	if etcd.IsManaged(s.root.Spec.Etcd) {
		volumes, err := etcd.RootShardVolumeClaims(s.root.Name)
		if err != nil {
			return fmt.Errorf("selecting the volumes of the etcd of RootShard %s: %w", s.root.Name, err)
		}
		err = s.Cluster.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(s.root.Namespace), client.MatchingLabelsSelector{Selector: volumes})
		if err != nil {
			return fmt.Errorf("deleting the volumes of the etcd of RootShard %s: %w", s.root.Name, err)
		}
	}
	if err := s.Cluster.SetFinalizer(ctx, s.root, operatorv1alpha1.FinalizerRootShard, false); err != nil {
		return err
	}
	return reconcile.ErrFinalized
}
