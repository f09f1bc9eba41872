package etcd

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Rejection is why a change of a running etcd is not possible, and what the user can do.
type Rejection struct{ Reason, Message string }

// ValidateUpdate rejects a change of the number of members, or of their storage except for a larger size. Both are fixed at
// the first start: changing either by replacing pods would lose data.
func ValidateUpdate(live, desired *appsv1.StatefulSet) *Rejection {
	if have, want := replicas(live), replicas(desired); have != want {
		return &Rejection{"EtcdReplicasImmutable", fmt.Sprintf(
			"etcd.managed.replicas is %d and etcd runs with %d: the number of members is fixed once etcd has started. Set it back to %d", want, have, have)}
	}
	have, want := describeStorage(live), describeStorage(desired)
	if have != want && !isGrowth(live, desired) {
		return &Rejection{"EtcdStorageImmutable", fmt.Sprintf(
			"etcd.managed.storage is %s and etcd runs on %s: storage is fixed once etcd has started, because its data would be lost, except that size may grow. Set it back", want, have)}
	}
	return nil
}

// ValidateRemoval rejects the change to another etcd while the one that the operator runs exists. live may be nil.
func ValidateRemoval(live *appsv1.StatefulSet) *Rejection {
	if live == nil {
		return nil
	}
	return &Rejection{"EtcdHoldsData", fmt.Sprintf(
		"etcd.endpoints is set and StatefulSet %s still holds this shard's data. Copy the data to the new etcd, then delete the StatefulSet; or remove etcd.endpoints", live.Name)}
}

// startProtocol changes when the start of members changes: their image changes with it, although etcd does not.
const startProtocol = "+record"

// versionAnnotation, on the StatefulSet, contains the version of etcd in the default image when the image was chosen, and the
// startProtocol.
const versionAnnotation = "operator.kcp.io/etcd-version"

// KeepImage keeps the image that members run while the desired one has the same version of etcd: a restart of a single member is an
// outage, and most versions of the image do not change etcd. The version in an image of the user is unknown, and only another repository
// changes it.
func KeepImage(live, desired *appsv1.StatefulSet) {
	if live.Annotations[versionAnnotation] != desired.Annotations[versionAnnotation] {
		return
	}
	have, want := &live.Spec.Template.Spec.Containers[0], &desired.Spec.Template.Spec.Containers[0]
	if repository(have.Image) == repository(want.Image) {
		want.Image = have.Image
	}
}

func repository(image string) string { return image[:max(strings.LastIndex(image, ":"), 0)] }

func replicas(set *appsv1.StatefulSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}

// isGrowth reports whether the storage differs only by a larger size.
func isGrowth(live, desired *appsv1.StatefulSet) bool {
	have, want := dataClaim(live), dataClaim(desired)
	if have == nil || want == nil || ptr.Deref(have.Spec.StorageClassName, "") != ptr.Deref(want.Spec.StorageClassName, "") {
		return false
	}
	size := want.Spec.Resources.Requests[corev1.ResourceStorage]
	return size.Cmp(have.Spec.Resources.Requests[corev1.ResourceStorage]) > 0
}

func dataClaim(set *appsv1.StatefulSet) *corev1.PersistentVolumeClaim {
	for i := range set.Spec.VolumeClaimTemplates {
		if claim := &set.Spec.VolumeClaimTemplates[i]; claim.Name == dataVolume {
			return claim
		}
	}
	return nil
}

// KeepClaimTemplates keeps the claim templates of an existing StatefulSet, because they are immutable. The operator resizes the claims
// instead.
func KeepClaimTemplates(live, desired *appsv1.StatefulSet) {
	desired.Spec.VolumeClaimTemplates = live.Spec.VolumeClaimTemplates
}

// KeepQuota keeps the quota of the database: the operator raises it after it has resized the volumes.
func KeepQuota(live, desired *appsv1.StatefulSet) {
	quota := func(set *appsv1.StatefulSet) *string {
		args := set.Spec.Template.Spec.Containers[0].Args
		at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--quota-backend-bytes=") })
		if at < 0 {
			return nil
		}
		return &args[at]
	}
	if have, want := quota(live), quota(desired); have != nil && want != nil {
		*want = *have
	}
}

// describeStorage describes the storage of a member; descriptions are equal if the storage is. A StatefulSet also omits an omitted
// storage class: the API server sets the default of the cluster on the claims only.
func describeStorage(set *appsv1.StatefulSet) string {
	for _, claim := range set.Spec.VolumeClaimTemplates {
		if claim.Name != dataVolume {
			continue
		}
		size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		class := ""
		if claim.Spec.StorageClassName != nil {
			class = " of storage class " + *claim.Spec.StorageClassName
		}
		return "a persistent volume claim of " + size.String() + class
	}
	return "an emptyDir volume"
}
