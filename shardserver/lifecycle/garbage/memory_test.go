package garbage

import (
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// TestMemory bounds the memory of the collector per object: none without owners, little with one.
func TestMemory(t *testing.T) {
	const objects = 20_000
	for name, tc := range map[string]struct {
		perOwner int
		maxBytes int64
	}{
		"without owners":            {0, 1},
		"one owner per object":      {1, 1500},
		"hundred objects per owner": {100, 700},
		"one owner of all objects":  {objects, 700},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGraph(func(key) {})
			resource := &storage.Resource{}
			before := heapBytes()
			for i := range objects {
				uid := types.UID(fmt.Sprintf("%036d", i))
				if tc.perOwner == 0 {
					g.update(resource, newObject("a", uid))
				} else {
					g.update(resource, newObject("a", uid, ownerRef(types.UID(fmt.Sprintf("owner-%030d", i/tc.perOwner)), true)))
				}
			}
			perObject := (heapBytes() - before) / objects
			t.Logf("%d bytes for each object", perObject)
			if perObject > tc.maxBytes {
				t.Errorf("%d bytes for each object, want at most %d", perObject, tc.maxBytes)
			}
			runtime.KeepAlive(g)
		})
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestUnresolvedReferencesAreBounded: one logical cluster does not take the places of others, and nothing stays after
// the search.
func TestUnresolvedReferencesAreBounded(t *testing.T) {
	s := newOwnerSearch(storage.NewRegistry(storage.Locality{}), nil)
	add := func(cluster string, count int) {
		name := logicalcluster.MustParseName(cluster)
		for i := range count {
			s.add(node{key: key{name, types.UID(fmt.Sprint(i))}}, metav1.OwnerReference{UID: "owner"})
		}
	}
	add("a", 2*maxUnresolvedPerCluster)
	add("b", 1)
	add("b", 1)
	for cluster, want := range map[string]int{"a": maxUnresolvedPerCluster, "b": 1} {
		if references := s.remove(logicalcluster.MustParseName(cluster)); len(references) != want {
			t.Errorf("%d unresolved references of %s, want %d", len(references), cluster, want)
		}
	}
	for i := range 2 * maxUnresolved / maxUnresolvedPerCluster {
		add(fmt.Sprintf("c%d", i), maxUnresolvedPerCluster)
	}
	if s.count != maxUnresolved {
		t.Errorf("%d unresolved references, want %d", s.count, maxUnresolved)
	}
	for cluster := range s.unresolved {
		s.remove(cluster)
	}
	if s.count != 0 || len(s.unresolved) != 0 {
		t.Errorf("%d references of %d logical clusters stay", s.count, len(s.unresolved))
	}
}
