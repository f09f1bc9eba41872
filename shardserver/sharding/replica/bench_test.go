package replica

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
)

// BenchmarkObject measures the memory of one object of another shard: a ClusterRole in its own logical cluster.
func BenchmarkObject(b *testing.B) {
	resource, _ := client.FindResource(clusterRoles)
	m := New(Config{Shard: "alpha", Root: "root", Resources: []client.Resource{resource}})
	f := &eventHandler{ctx: context.Background(), store: m.stores[clusterRoles]}
	before := heapBytes()
	for i := 0; b.Loop(); i++ {
		cluster := logicalcluster.MustParseName(fmt.Sprintf("c%d", i))
		object := newRole(cluster)
		f.store.mu.Lock()
		f.add(object)
		f.store.mu.Unlock()
	}
	count, _ := f.store.size()
	b.ReportMetric(float64(heapBytes()-before)/float64(count), "B/object")
	if _, found := m.Get(clusterRoles, logicalcluster.MustParseName("c0"), "", "binders"); !found {
		b.Error("the first object is missing")
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func newRole(cluster logicalcluster.Name) *client.Object {
	const version = "1"
	raw := fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"binders","uid":"0f1f6d1e-9d5c-4f86-9f0b-1c2d3e4f5a6b",`+
		`"resourceVersion":%q,"creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"kcp.io/cluster":%q,"kcp.io/shard":"beta",`+
		`"cache.kcp.io/original-resource-version":"7","cache.kcp.io/original-resource-UID":"0f1f6d1e-9d5c-4f86-9f0b-1c2d3e4f5a6b","internal.kcp.io/replicate":"apis.kcp.io"},`+
		`"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"rbac.authorization.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:rules":{}}}]},`+
		`"rules":[{"apiGroups":["apis.kcp.io"],"resources":["apiexports"],"resourceNames":["widgets"],"verbs":["bind"]}]}`, version, cluster)
	object := &client.Object{Key: client.Key{Shard: "beta", Cluster: cluster, Name: "binders"}, Raw: []byte(raw)}
	object.Meta.ResourceVersion, object.Meta.UID = version, types.UID("0f1f6d1e-9d5c-4f86-9f0b-1c2d3e4f5a6b")
	return object
}
