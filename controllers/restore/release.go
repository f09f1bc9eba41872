package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
)

// held is the condition of an installation that is restored and not released.
func (s *scope) held() status.Result {
	return status.Warn(operatorv1alpha1.ConditionReleased, "AwaitsRelease", "the restored shards delete nothing because they do not find it. Compare the installation with what lives outside of it (docs/restore.md), and set spec.release: true")
}

// release removes the marks of the shards when the user releases them, once.
func (s *scope) release(ctx context.Context) error {
	const condition = operatorv1alpha1.ConditionReleased
	switch {
	case meta.IsStatusConditionTrue(s.restore.Status.Conditions, condition):
		s.report.Set(status.OK(condition, "Released", "the restored shards were released"))
		return nil
	case !s.restore.Spec.Release:
		s.report.Set(s.held())
		return nil
	case s.root == nil, s.restore.Status.StoppedAt.Before(&s.root.CreationTimestamp): // a later one of the same name may await a release of its own
		s.report.Set(status.Warn(condition, operatorv1alpha1.ReasonReferenceNotFound, "RootShard %s, which was restored, does not exist any more", s.restore.Spec.RootShardRef.Name))
		return nil
	}
	later, err := s.laterRestores(ctx)
	if err != nil {
		return err
	}
	var problems []error
	var held []string
	for _, shard := range s.installation.shards {
		if !slices.Contains(s.restore.Status.Shards, shard.Name()) { // it was created later, and what was restored by hand is not released by this Restore
			continue
		}
		if by := later[shard.Name()]; by != "" { // the mark is that of the later one, and what it has not restored yet is lost
			held = append(held, fmt.Sprintf("shard %s, which Restore %s has restored since, is released with that one", shard.Name(), by))
			continue
		}
		if err := s.releaseShard(ctx, shard); err != nil {
			problems = append(problems, fmt.Errorf("shard %s: %w", shard.Name(), err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		s.report.RequeueWithin(retryInterval)
		s.report.Set(status.Warn(condition, "Unavailable", "not all shards could be released, and the next attempt follows: %v", err))
		return nil
	}
	s.report.Set(status.OK(condition, "Released", "%s", strings.Join(append([]string{"the restored shards were released"}, held...), "; ")))
	return nil
}

// laterRestores returns the names of Restores that have begun after this one and are not released, by shard.
func (s *scope) laterRestores(ctx context.Context) (map[string]string, error) {
	list := &operatorv1alpha1.RestoreList{}
	if err := s.config.Cluster.List(ctx, list, client.InNamespace(s.restore.Namespace)); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == s.restore.UID || other.Spec.RootShardRef.Name != s.root.Name || isFailed(other) || isCompleted(other) && other.Spec.Release || !s.restore.Status.StartedAt.Before(other.Status.StartedAt) {
			continue
		}
		for _, name := range other.Status.Shards {
			out[name] = other.Name
		}
	}
	return out, nil
}

func (s *scope) releaseShard(ctx context.Context, shard shard) error {
	connection := etcd.Connection(shard.AsOwner(), shard.Spec().Etcd)
	secret, err := apply.Get[corev1.Secret](ctx, s.config.Cluster, shard.Namespace(), connection.Credentials)
	if err != nil {
		return err
	}
	if secret == nil {
		return fmt.Errorf("Secret %s with the credentials of its etcd does not exist yet", connection.Credentials)
	}
	credentials, err := s.etcds.Credentials(secret.Data)
	if err != nil {
		return err
	}
	return s.etcds.DeleteKey(ctx, connection.Servers, credentials, reservedkeys.Restored(shard.prefix()))
}
