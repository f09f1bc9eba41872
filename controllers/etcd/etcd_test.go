package etcd_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/internal/golden"
)

var image = desired.Image{Repository: "registry.example.com/atoll", Tag: "v0.1.0"}

func newManagedEtcd(t *testing.T, spec *operatorv1alpha1.ManagedEtcd) etcd.Cluster {
	t.Helper()
	root := golden.Sample[operatorv1alpha1.RootShard](t, "rootshard_minimal.yaml")
	if spec != nil {
		root.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: spec}
	}
	return etcd.NewForShard(desired.NewRootShard(root))
}

func TestRenderedObjects(t *testing.T) {
	size := resource.MustParse("20Gi")
	for name, spec := range map[string]*operatorv1alpha1.ManagedEtcd{
		"minimal": nil,
		"three":   {Replicas: ptr.To[int32](3), Storage: &operatorv1alpha1.EtcdStorage{Size: &size, StorageClassName: ptr.To("fast")}},
		"trial":   {Storage: &operatorv1alpha1.EtcdStorage{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newManagedEtcd(t, spec)
			objects := []client.Object{cluster.StatefulSet(image)}
			for _, service := range cluster.Services() {
				objects = append(objects, service)
			}
			if budget := cluster.DisruptionBudget(); budget != nil {
				objects = append(objects, budget)
			}
			for _, issuer := range cluster.Certificates().Issuers {
				objects = append(objects, issuer)
			}
			for _, certificate := range cluster.Certificates().Certificates {
				objects = append(objects, certificate)
			}
			golden.Check(t, name, objects...)
		})
	}
}

func TestValidateUpdate(t *testing.T) {
	quantity := func(s string) *resource.Quantity { q := resource.MustParse(s); return &q }
	storage := func(s operatorv1alpha1.EtcdStorage) *operatorv1alpha1.ManagedEtcd {
		return &operatorv1alpha1.ManagedEtcd{Storage: &s}
	}
	emptyDir := storage(operatorv1alpha1.EtcdStorage{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	for name, tc := range map[string]struct {
		live, wanted *operatorv1alpha1.ManagedEtcd
		reason, text string
	}{
		"the same is no change":                 {nil, nil, "", ""},
		"a size written out is the default one": {nil, storage(operatorv1alpha1.EtcdStorage{Size: quantity("8Gi")}), "", ""},
		"more members are rejected": {
			nil, &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To[int32](3)}, "EtcdReplicasImmutable", "Set it back to 1"},
		"a larger size is accepted": {nil, storage(operatorv1alpha1.EtcdStorage{Size: quantity("20Gi")}), "", ""},
		"a smaller size is rejected": {
			nil, storage(operatorv1alpha1.EtcdStorage{Size: quantity("2Gi")}), "EtcdStorageImmutable", "is a persistent volume claim of 2Gi and etcd runs on a persistent volume claim of 8Gi"},
		"a larger size of another class is rejected": {
			nil, storage(operatorv1alpha1.EtcdStorage{Size: quantity("20Gi"), StorageClassName: ptr.To("fast")}), "EtcdStorageImmutable", "of storage class fast"},
		"another class is rejected": {
			nil, storage(operatorv1alpha1.EtcdStorage{StorageClassName: ptr.To("fast")}), "EtcdStorageImmutable", "of storage class fast"},
		"a claim instead of an emptyDir is rejected": {emptyDir, nil, "EtcdStorageImmutable", "etcd runs on an emptyDir volume"},
		"an emptyDir instead of a claim is rejected": {nil, emptyDir, "EtcdStorageImmutable", "is an emptyDir volume"},
	} {
		t.Run(name, func(t *testing.T) {
			rejection := etcd.ValidateUpdate(newManagedEtcd(t, tc.live).StatefulSet(image), newManagedEtcd(t, tc.wanted).StatefulSet(image))
			switch {
			case tc.reason == "" && rejection != nil:
				t.Errorf("rejected: %s", rejection.Message)
			case tc.reason != "" && (rejection == nil || rejection.Reason != tc.reason || !strings.Contains(rejection.Message, tc.text)):
				t.Errorf("got %+v, want %s with %q", rejection, tc.reason, tc.text)
			}
		})
	}
}

func TestValidateRemoval(t *testing.T) {
	if etcd.ValidateRemoval(nil) != nil {
		t.Error("the removal is rejected although no StatefulSet exists")
	}
	if rejection := etcd.ValidateRemoval(newManagedEtcd(t, nil).StatefulSet(image)); rejection == nil || rejection.Reason != "EtcdHoldsData" {
		t.Errorf("got %+v", rejection)
	}
}

func TestQuotaBackendBytes(t *testing.T) {
	size := func(s string) *operatorv1alpha1.ManagedEtcd {
		q := resource.MustParse(s)
		return &operatorv1alpha1.ManagedEtcd{Storage: &operatorv1alpha1.EtcdStorage{Size: &q}}
	}
	for name, tc := range map[string]struct {
		spec *operatorv1alpha1.ManagedEtcd
		want string
	}{
		"three quarters of the default claim":      {nil, "--quota-backend-bytes=6442450944"},
		"at most the maximum that etcd recommends": {size("100Gi"), "--quota-backend-bytes=8589934592"},
		"two gibibytes without a limit":            {&operatorv1alpha1.ManagedEtcd{Storage: &operatorv1alpha1.EtcdStorage{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, "--quota-backend-bytes=2147483648"},
		"three quarters of a limited emptyDir": {&operatorv1alpha1.ManagedEtcd{Storage: &operatorv1alpha1.EtcdStorage{EmptyDir: &corev1.EmptyDirVolumeSource{
			SizeLimit: ptr.To(resource.MustParse("1Gi"))}}}, "--quota-backend-bytes=805306368"},
	} {
		t.Run(name, func(t *testing.T) {
			args := newManagedEtcd(t, tc.spec).StatefulSet(image).Spec.Template.Spec.Containers[0].Args
			if !strings.Contains(strings.Join(args, " ")+" ", tc.want+" ") {
				t.Errorf("%s is missing from %q", tc.want, args)
			}
		})
	}
}

func TestKeepImage(t *testing.T) {
	set := func(image, version string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"operator.kcp.io/etcd-version": version}},
			Spec:       appsv1.StatefulSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}},
		}
	}
	for name, tc := range map[string]struct {
		live, wanted *appsv1.StatefulSet
		image        string
	}{
		"another tag":                        {set("example.com/atoll:v1", "3.6"), set("example.com/atoll:v2", "3.6"), "example.com/atoll:v1"},
		"another tag with another etcd":      {set("example.com/atoll:v1", "3.6"), set("example.com/atoll:v2", "3.7"), "example.com/atoll:v2"},
		"another registry":                   {set("example.com:5000/atoll:v1", "3.6"), set("example.org:5000/atoll:v1", "3.6"), "example.org:5000/atoll:v1"},
		"members of an operator before this": {set("example.com/atoll:v1", ""), set("example.com/atoll:v2", "3.6"), "example.com/atoll:v2"},
	} {
		t.Run(name, func(t *testing.T) {
			etcd.KeepImage(tc.live, tc.wanted)
			if have := tc.wanted.Spec.Template.Spec.Containers[0].Image; have != tc.image {
				t.Errorf("got %s", have)
			}
		})
	}
}
