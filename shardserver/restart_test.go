package shardserver_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestRestartFillsWatchCaches: objects of equal names in many clusters must all reach the watch caches again,
// which a list fills after a restart, and not events.
func TestRestartFillsWatchCaches(t *testing.T) {
	before := compactors()
	p := newWorkspacePair(t)
	if err := p.shard.Stop(); err != nil {
		t.Fatal(err)
	}
	// Storage that is left open keeps the compactor, for whose watch the embedded etcd waits for seconds when it stops.
	shardtesting.Eventually(t, "a stopped shard to close its storage", func(context.Context) error {
		if left := compactors() - before; left > 0 {
			return fmt.Errorf("%d compactors run", left)
		}
		return nil
	})
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

// compactors returns the number of compactors of Kubernetes' storage in this process.
func compactors() int {
	var stacks bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2) // a buffer takes all
	return strings.Count(stacks.String(), "etcd3.(*compactor).runCompactLoop(")
}
