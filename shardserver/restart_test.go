package shardserver_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestRestartFillsWatchCaches: objects of equal names in many clusters must all reach the watch caches again,
// which a list fills after a restart, and not events.
func TestRestartFillsWatchCaches(t *testing.T) {
	p := newWorkspacePair(t)
	if err := p.shard.Stop(); err != nil {
		t.Fatal(err)
	}
	shard := shardtesting.StartIn(t, p.shard.Directory)
	all := shard.Kubernetes(t, shardtesting.At(shard.Masters(t), "*"))
	for name, resourceVersion := range map[string]string{"from the cache": "0", "consistent": ""} {
		t.Run(name, func(t *testing.T) {
			list, err := all.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{LabelSelector: "of=pair", ResourceVersion: resourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]int{}
			for _, item := range list.Items {
				seen[item.Annotations["kcp.io/cluster"]]++
			}
			if seen[p.clusterA] != objectsPerWorkspace || seen[p.clusterB] != objectsPerWorkspace {
				t.Errorf("objects by cluster: %v, want %d in each of %s and %s", seen, objectsPerWorkspace, p.clusterA, p.clusterB)
			}
		})
	}
	for _, path := range []string{"root:a", "root:b", p.clusterA, p.clusterB} {
		at := shard.Kubernetes(t, shardtesting.At(shard.Admin(t), path))
		if _, err := at.CoreV1().ConfigMaps("same").Get(t.Context(), "cm-0", metav1.GetOptions{ResourceVersion: "0"}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
