package etcdserver

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/status"
)

// TestGrowVolumes checks that claims get a larger size, that the quota is raised after the volumes have it, and that a class without
// expansion is reported.
func TestGrowVolumes(t *testing.T) {
	newCluster := func(size string) etcd.Cluster {
		root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp", UID: "uid"}}
		quantity := resource.MustParse(size)
		root.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{Storage: &operatorv1alpha1.EtcdStorage{Size: &quantity}}}
		return etcd.NewForShard(desired.NewRootShard(root))
	}
	image := desired.Image{Repository: "atoll", Tag: "v1"}
	const old, grown = "--quota-backend-bytes=3221225472", "--quota-backend-bytes=6442450944"
	for name, tc := range map[string]struct {
		capacity, wanted string
		forbidden        bool
		request          string // of the claim, afterwards
		quota, reason    string
	}{
		"the same size changes nothing":          {"4Gi", "4Gi", false, "4Gi", old, ""},
		"a larger size resizes the claim first":  {"4Gi", "8Gi", false, "8Gi", old, "ResizingVolumes"},
		"the quota follows the volume":           {"8Gi", "8Gi", false, "8Gi", grown, ""},
		"a class without expansion is reported":  {"4Gi", "8Gi", true, "4Gi", old, "VolumeNotExpandable"},
		"a volume that is larger than its claim": {"10Gi", "8Gi", false, "8Gi", grown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "data-root-etcd-0", Namespace: "kcp"},
				Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}}},
				Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(tc.capacity)}},
			}
			live := newCluster("4Gi").StatefulSet(image)
			c := interceptor.NewClient(memory.NewClient(t, claim).(client.WithWatch), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					if tc.forbidden {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, object.GetName(), nil)
					}
					return c.Patch(ctx, object, patch, options...)
				},
			})
			managed := newCluster(tc.wanted)
			store := Store{Cluster: apply.Cluster{Client: c}, Report: &status.Report{}, Now: time.Now, managed: &managed, live: live, desired: managed.StatefulSet(image)}
			if err := store.growVolumes(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
				t.Fatal(err)
			}
			if request := claim.Spec.Resources.Requests[corev1.ResourceStorage]; request.String() != tc.request {
				t.Errorf("the claim requests %s", request.String())
			}
			if args := store.desired.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, tc.quota) {
				t.Errorf("the arguments are %v", args)
			}
			if size := store.desired.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "4Gi" {
				t.Errorf("the template of the claim has %s", size.String())
			}
			if store.members.volumes.Reason != tc.reason {
				t.Errorf("got %+v", store.members.volumes)
			}
		})
	}
}
