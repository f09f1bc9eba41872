package cachedresources_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testReplicas: a third shard has two servers on one etcd, one of which writes the replicas. Both serve them in the
// same versions; when the first server ends, the second takes over.
func (s *shardedEnv) testReplicas(t *testing.T) {
	etcd := etcdtest.Start(t)
	cached := s.cache.Kubeconfig(t, s.cache.Shard(t, "gamma"))
	start := func() *shardtesting.Shard {
		return shardtesting.StartShard(t, s.root, "gamma", cacheAPIs, func(o *options.Options) {
			o.Shard.CacheKubeconfig = cached
			o.Controllers.EnableLeaderElection = true
			etcd.Connect(&o.Etcd.StorageConfig.Transport)
		})
	}
	first, second := start(), start()
	s.root.WaitShards(t, "gamma")
	consumer := shardtesting.NewWorkspace(t, s.root.Client(t, s.root.Admin(t)), "root", "of-gamma", shardtesting.OnShard("gamma")).Spec.Cluster
	bind(t, first, consumer, s.provider, "flavors")
	clients := map[string]dynamic.ResourceInterface{
		"the first":  s.flavorsClient(t, first.Admin(t), "/clusters/"+consumer),
		"the second": s.flavorsClient(t, second.Admin(t), "/clusters/"+consumer),
	}
	eventuallyLists := func(replica string, want ...string) string {
		t.Helper()
		return waitForNames(t, replica+" server to list all", clients[replica], want...)
	}
	eventuallyLists("the second", "bitter", "salty", "smoky", "sweet")
	version := eventuallyLists("the first", "bitter", "salty", "smoky", "sweet") // not older than the second's watch cache
	events, err := clients["the second"].Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	s.setLabel(t, "smoky", "no")
	if event := <-events.ResultChan(); event.Type != watch.Deleted || objectName(event) != "smoky" {
		t.Errorf("got %+v", event)
	}
	eventuallyLists("the first", "bitter", "salty", "sweet")
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	eventuallyLists("the second", "bitter", "salty", "sweet")
	s.setLabel(t, "smoky", "yes")
	if event := <-events.ResultChan(); event.Type != watch.Added || objectName(event) != "smoky" {
		t.Errorf("got %+v", event)
	}
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}
	if err := second.Client(t, second.Admin(t)).Delete(shardtesting.In(t.Context(), consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.waitSlice(t, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return len(slice.Status.Endpoints) == 1
	})
}
