package shardserver_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestConsistentListLatency covers lists that follow a write of another resource: the watch cache
// must request progress at once to confirm that its own resource has not changed. Its periodic request would add some
// 100 ms to each list.
func TestConsistentListLatency(t *testing.T) {
	shard := shardtesting.Start(t)
	shard.NewWorkspace(t, "root", "busy")
	clients := shard.Kubernetes(t, shardtesting.At(shard.Admin(t), "root:busy")).CoreV1()
	const rounds = 20
	var lists, reads [rounds]time.Duration
	for i := range rounds {
		written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%d", i)}}
		if _, err := clients.ConfigMaps("default").Create(t.Context(), written, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := clients.Secrets("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		lists[i] = time.Since(began)
		began = time.Now()
		if _, err := clients.ConfigMaps("default").Get(t.Context(), written.Name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		reads[i] = time.Since(began)
	}
	slices.Sort(lists[:])
	slices.Sort(reads[:])
	if list, read := lists[rounds/2], reads[rounds/2]; list > read+50*time.Millisecond {
		t.Errorf("half of the lists took more than %s, and of reads from etcd more than %s", list, read)
	}
}
