package shardserver_test

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestClusterCachedResourceAdmission(t *testing.T) {
	shard := shardtesting.Start(t, func(o *options.Options) { o.FeatureGates = []string{"CacheAPIs=true"} })
	provider := shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	t.Run("resources", func(t *testing.T) { testClusterCachedResource(t, shard, provider) })
	t.Run("endpoint slices", func(t *testing.T) { testClusterCachedResourceEndpointSlice(t, shard, provider) })
}

func testClusterCachedResource(t *testing.T, shard *shardtesting.Shard, provider string) {
	c, in := shard.Client(t, shard.Admin(t)), shardtesting.In(t.Context(), provider)
	cached := func(name, group, resource string) *cachev1alpha1.ClusterCachedResource {
		return &cachev1alpha1.ClusterCachedResource{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: cachev1alpha1.ClusterCachedResourceSpec{GroupVersionResource: cachev1alpha1.GroupVersionResource{
				Group: group, Version: "v1", Resource: resource,
			}},
		}
	}
	wantForbidden(t, c.Create(in, cached("a", "", "configmaps")), "only cluster-scoped resources")
	first := cached("a", "example.com", "instances")
	if err := c.Create(in, first); err != nil {
		t.Fatal(err)
	}
	if path := first.Annotations[logicalcluster.PathAnnotationKey]; path != "root:provider" {
		t.Errorf("path %q", path)
	}
	wantForbidden(t, c.Create(in, cached("b", "example.com", "instances")), `already cached by ClusterCachedResource "a"`)
	if err := c.Create(in, cached("a", "example.com", "instances")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same object again: %v", err)
	}
	if err := c.Create(in, cached("b", "example.com", "others")); err != nil {
		t.Error(err)
	}
	if err := c.Patch(in, first, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"kcp.io/path":"forged"}}}`))); err != nil || first.Annotations[logicalcluster.PathAnnotationKey] != "root:provider" {
		t.Errorf("%v, %v", first.Annotations, err)
	}
}

func testClusterCachedResourceEndpointSlice(t *testing.T, shard *shardtesting.Shard, provider string) {
	thief := shard.NewWorkspace(t, "root", "thief").Spec.Cluster
	admin, user := shard.Client(t, shard.Admin(t)), shard.Client(t, shard.User(t))
	in := shardtesting.In(t.Context(), thief)
	role := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "user"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:authenticated"}},
	}
	if err := admin.Create(in, role); err != nil {
		t.Fatal(err)
	}
	slice := func(name, path string) *cachev1alpha1.ClusterCachedResourceEndpointSlice {
		return &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
			ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Path: path, Name: "flavors"},
			APIExport:             cachev1alpha1.ExportBindingReference{Name: "flavors"},
		}}
	}
	shardtesting.Eventually(t, "the permission of the administrator", func(ctx context.Context) error {
		return user.Create(shardtesting.In(ctx, thief), slice("own", ""))
	})
	for name, path := range map[string]string{"by-path": "root:provider", "by-name": provider, "missing": "root:missing"} {
		wantForbidden(t, user.Create(in, slice(name, path)), "no permission to bind ClusterCachedResource "+path+":flavors")
	}
	if err := user.Create(in, slice("own-name", thief)); err != nil {
		t.Error(err)
	}
	if err := admin.Create(in, slice("by-path", "root:provider")); err != nil {
		t.Errorf("with permission: %v", err)
	}
}
