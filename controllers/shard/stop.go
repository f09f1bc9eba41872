package shard

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/etcd"
)

// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=delete

// stop deletes the server and the etcd of a shard whose data a Restore replaces, so that the shard then is one that has not started. This controller
// does it, and not that of the Restore, because it would create them again. It reads past the cache, which may not have what this controller has just
// created. The volume claims stay.
func (s *shardScope) stop(ctx context.Context) error {
	if !s.stops {
		return nil
	}
	shard := s.desiredShard()
	deployment, err := apply.Get[appsv1.Deployment](ctx, s.Reader(), shard.Namespace(), shard.Server())
	if err != nil {
		return err
	}
	set, err := apply.Get[appsv1.StatefulSet](ctx, s.Reader(), shard.Namespace(), etcd.StatefulSetName(shard.AsOwner()))
	if err != nil {
		return err
	}
	if deployment != nil && metav1.IsControlledBy(deployment, s.shard) {
		if err := s.delete(ctx, deployment); err != nil {
			return fmt.Errorf("stopping the server of Shard %s: %w", s.shard.Name, err)
		}
	}
	if set != nil && metav1.IsControlledBy(set, s.shard) {
		if err := s.delete(ctx, set); err != nil {
			return fmt.Errorf("stopping the etcd of Shard %s: %w", s.shard.Name, err)
		}
	}
	return nil
}

// delete deletes a workload in the foreground: it exists until its pods have ended, and nothing of it creates others.
func (s *shardScope) delete(ctx context.Context, object client.Object) error {
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := object.GetUID()
	return client.IgnoreNotFound(s.Cluster.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationForeground)))
}
