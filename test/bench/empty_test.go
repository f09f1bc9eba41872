package bench

import (
	"fmt"
	"testing"
)

// BenchmarkEmptyServers measures what a server needs before it has objects: what each tenant costs where tenants have servers
// of their own, against one shard for all.
func BenchmarkEmptyServers(b *testing.B) {
	recordDuration(b)
	const mebibyte = 1 << 20
	measured := map[string][2]float64{}
	for _, server := range startServers(b, 0) {
		heap := server.heap(b)
		measured[server.name] = [2]float64{server.metrics(b, "process_resident_memory_bytes")[0] / mebibyte, heap / mebibyte}
	}
	stock, shard := measured["kube-apiserver"], measured["shard"]
	record("resident memory of an empty shard", shard[0], "MiB", fmt.Sprintf("an empty kube-apiserver %.0f; without etcd", stock[0]))
	record("heap of an empty shard", shard[1], "MiB", fmt.Sprintf("an empty kube-apiserver %.0f; after a garbage collection", stock[1]))
}
