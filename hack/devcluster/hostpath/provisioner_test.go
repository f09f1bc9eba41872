package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNewVolume(t *testing.T) {
	class := "standard"
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u1"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	volume := newVolume(claim, "/volumes")
	if got := volume.Spec.HostPath.Path; got != "/volumes/pvc-u1" {
		t.Errorf("folder %s", got)
	}
	ref := volume.Spec.ClaimRef
	if ref == nil || ref.UID != "u1" || ref.Namespace != "ns" || ref.Name != "data" {
		t.Errorf("claim %+v", ref)
	}
	if size := volume.Spec.Capacity[corev1.ResourceStorage]; size.String() != "1Gi" || volume.Spec.StorageClassName != class {
		t.Errorf("spec %+v", volume.Spec)
	}
	if volume.Annotations[provisionedByAnnotation] != provisionerName {
		t.Errorf("annotations %v", volume.Annotations)
	}
}
