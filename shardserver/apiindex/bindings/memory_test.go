package bindings

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// newFilledIndex returns an index of logical clusters with the bindings of new workspaces.
func newFilledIndex(clusters int) *Index {
	i := NewIndex(storage.NewRegistry(storage.Locality{}))
	tenancy := make([]Resource, 0, 3)
	for _, name := range []string{"workspaces", "workspacetypes", "workspaceauthenticationconfigurations"} {
		r := widgets("v1." + name + ".tenancy.kcp.io")
		r.GroupResource = schema.GroupResource{Group: "tenancy.kcp.io", Resource: name}
		tenancy = append(tenancy, r)
	}
	for n := range clusters {
		cluster := fmt.Sprintf("cluster%09d", n)
		i.update(newParsedBinding(cluster, "tenancy.kcp.io-"+cluster[:5], uint64(n+1), tenancy...), false)
		i.update(newParsedBinding(cluster, "topology.kcp.io-"+cluster[:5], uint64(n+1), gadgets("id1")), false)
	}
	return i
}

func TestMemoryPerLogicalClusterIsBounded(t *testing.T) {
	const clusters, maxBytes = 50_000, 400 // bytes for each: its name, two bindings, their names
	before := heapBytes()
	i := newFilledIndex(clusters)
	perCluster := (heapBytes() - before) / clusters
	t.Logf("a logical cluster with two bindings takes %d bytes", perCluster)
	if perCluster > maxBytes {
		t.Errorf("a logical cluster with two bindings takes %d bytes, want at most %d", perCluster, maxBytes)
	}
	if _, _, sets, resources := i.Sizes(); sets != 2 || resources != 4 {
		t.Errorf("%d sets of %d resources, want 2 of 4", sets, resources)
	}
}

func heapBytes() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc) // a heap fits
}

func BenchmarkGet(b *testing.B) {
	i := newFilledIndex(100_000)
	gr := gadgets("").GroupResource
	ctx := logicalcluster.With(b.Context(), logicalcluster.MustParseName("cluster000050000"))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := i.Get(ctx, gr); !ok {
			b.Fatal("not found")
		}
	}
}
