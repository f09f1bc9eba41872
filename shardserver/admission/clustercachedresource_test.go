package admission_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestWhatCanBeCached(t *testing.T) {
	shard := shardtesting.Start(t, func(o *options.Options) { o.FeatureGates = []string{"CacheAPIs=true"} })
	workspace := shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	c, in := shard.Client(t, shard.Admin(t)), shardtesting.In(t.Context(), workspace)
	cached := func(name, group, resource string) *cachev1alpha1.ClusterCachedResource {
		return &cachev1alpha1.ClusterCachedResource{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: cachev1alpha1.ClusterCachedResourceSpec{GroupVersionResource: cachev1alpha1.GroupVersionResource{
				Group: group, Version: "v1", Resource: resource,
			}},
		}
	}
	wantRefused(t, c.Create(in, cached("a", "", "configmaps")), "only cluster-scoped resources")
	first := cached("a", "example.com", "instances")
	if err := c.Create(in, first); err != nil {
		t.Fatal(err)
	}
	if path := first.Annotations[logicalcluster.PathAnnotationKey]; path != "root:provider" {
		t.Errorf("path %q", path)
	}
	wantRefused(t, c.Create(in, cached("b", "example.com", "instances")), `already cached by ClusterCachedResource "a"`)
	if err := c.Create(in, cached("a", "example.com", "instances")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same once more: %v", err)
	}
	if err := c.Create(in, cached("b", "example.com", "others")); err != nil {
		t.Error(err)
	}
	if err := c.Patch(in, first, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"kcp.io/path":"forged"}}}`))); err != nil || first.Annotations[logicalcluster.PathAnnotationKey] != "root:provider" {
		t.Errorf("%v, %v", first.Annotations, err)
	}
}
