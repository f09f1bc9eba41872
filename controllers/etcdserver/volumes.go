package etcdserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;patch

// growVolumes resizes the claims of an existing etcd to the size of the spec. It does not raise the quota of the database until all
// volumes have that size.
func (s *Store) growVolumes(ctx context.Context) error {
	const healthy = operatorv1alpha1.ConditionEtcdHealthy
	etcd.KeepClaimTemplates(s.live, s.desired)
	grown := true
	for _, name := range s.managed.ClaimNames() {
		claim, err := apply.Get[corev1.PersistentVolumeClaim](ctx, s.Cluster, s.managed.Owner().Namespace, name)
		if err != nil {
			return err
		}
		if claim == nil || claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
			continue
		}
		size := s.managed.ClaimSize()
		if size.Cmp(claim.Spec.Resources.Requests[corev1.ResourceStorage]) > 0 {
			before := claim.DeepCopy()
			claim.Spec.Resources.Requests[corev1.ResourceStorage] = size
			err := s.Cluster.Patch(ctx, claim, client.MergeFrom(before), client.FieldOwner(apply.FieldManager))
			switch {
			case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
				s.members.volumes = status.Warn(healthy, "VolumeNotExpandable", "claim %s cannot grow to %s: %v. Allow it in its StorageClass (allowVolumeExpansion: true), or set etcd.managed.storage.size back", name, size.String(), err)
				etcd.KeepQuota(s.live, s.desired)
				return nil
			case err != nil:
				return err
			}
		}
		if capacity := claim.Status.Capacity[corev1.ResourceStorage]; size.Cmp(capacity) > 0 {
			grown = false
			s.members.volumes = status.Warn(healthy, "ResizingVolumes", "claim %s grows to %s; see `kubectl -n %s describe pvc %s`", name, size.String(), claim.Namespace, name)
		}
	}
	if !grown {
		etcd.KeepQuota(s.live, s.desired)
	}
	return nil
}
