package etcd

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Refusal says why a wanted change cannot be made to an etcd that runs, and what the user can do.
type Refusal struct{ Reason, Message string }

// ValidateUpdate decides whether the members that run can become those that are wanted. Both the number of members and what
// they keep their data on are fixed at the first start: changing either by replacing pods would lose data.
func ValidateUpdate(live, wanted *appsv1.StatefulSet) *Refusal {
	if have, want := replicas(live), replicas(wanted); have != want {
		return &Refusal{"EtcdReplicasImmutable", fmt.Sprintf(
			"etcd.managed.replicas is %d and etcd runs with %d: the number of members is fixed once etcd has started. Set it back to %d", want, have, have)}
	}
	have, want := storage(live), storage(wanted)
	if have != want {
		return &Refusal{"EtcdStorageImmutable", fmt.Sprintf(
			"etcd.managed.storage asks for %s and etcd runs on %s: storage is fixed once etcd has started, because its data would be lost. Set it back", want, have)}
	}
	return nil
}

// ValidateRemoval decides whether an etcd that runs can be left for another one that the spec now names.
func ValidateRemoval(live *appsv1.StatefulSet) *Refusal {
	if live == nil {
		return nil
	}
	return &Refusal{"EtcdHoldsData", fmt.Sprintf(
		"etcd.endpoints is set and StatefulSet %s still holds this shard's data. Copy the data to the new etcd, then delete the StatefulSet; or remove etcd.endpoints", live.Name)}
}

// versionAnnotation, on the StatefulSet, is the version of etcd that the operator came with when it chose the image.
const versionAnnotation = "operator.kcp.io/etcd-version"

// KeepImage lets members go on with the image they run while a newer one brings the same etcd: a restart of the only
// member is an outage, and most versions of the servers change nothing about their store. A version that the operator
// does not know of, in an image of the user's, is not noticed; another repository is.
func KeepImage(live, wanted *appsv1.StatefulSet) {
	if live.Annotations[versionAnnotation] != wanted.Annotations[versionAnnotation] {
		return
	}
	have, want := &live.Spec.Template.Spec.Containers[0], &wanted.Spec.Template.Spec.Containers[0]
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

// storage describes what a member keeps its data on, in words that are equal when the storage is. A class left out stays
// out of the StatefulSet: the cluster's default is filled in on the claims only.
func storage(set *appsv1.StatefulSet) string {
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
