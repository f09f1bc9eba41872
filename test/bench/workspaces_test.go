package bench

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// workspaces is how many empty workspaces the cost of one is measured over; writers create them concurrently.
const (
	workspaces = 1000
	writers    = 16
)

// BenchmarkStart measures an empty shard from nothing to ready, embedded etcd included.
func BenchmarkStart(b *testing.B) {
	for range b.N {
		begun := time.Now()
		shard := shardtesting.Start(b)
		record("kcp start, empty, until ready", time.Since(begun).Seconds(), "s", "goal 5 s; in-process, embedded etcd")
		if err := shard.Stop(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWorkspaces measures the creation and the cost of empty workspaces below one parent.
func BenchmarkWorkspaces(b *testing.B) {
	for range b.N {
		shard := shardtesting.Start(b)
		creator := newCreator(b, shard)
		creator.create(b, "warm", 10) // caches and connections that exist once are no cost of a workspace
		before, seriesBefore := settle(), series(b, shard.Masters(b))

		begun := time.Now()
		latencies := creator.create(b, "ws", workspaces)
		took := time.Since(begun)
		after, seriesAfter := settle(), series(b, shard.Masters(b))

		record("workspaces created until Ready, flat", workspaces/took.Seconds(), "1/s", fmt.Sprintf("goal 100/s; %d writers, %d workspaces", writers, workspaces))
		record("workspace create to Ready p50", quantile(latencies, 0.5).Seconds()*1000, "ms", "same run")
		record("workspace create to Ready p99", quantile(latencies, 0.99).Seconds()*1000, "ms", "goal 1000 ms; same run")
		record("heap with 0 workspaces", float64(before.heapBytes)/(1<<20), "MiB", "shard, etcd and client in one process")
		record(fmt.Sprintf("heap with %d workspaces", workspaces), float64(after.heapBytes)/(1<<20), "MiB", "same")
		record("heap per empty workspace", float64(after.heapBytes-before.heapBytes)/workspaces/1024, "KiB", "goal 64 KiB; includes the etcd in this process")
		record("goroutines with 0 workspaces", float64(before.goroutines), "", "same process")
		record(fmt.Sprintf("goroutines with %d workspaces", workspaces), float64(after.goroutines), "", "goal: unchanged")
		record("metric lines with 0 workspaces", float64(seriesBefore), "", "")
		record(fmt.Sprintf("metric lines with %d workspaces", workspaces), float64(seriesAfter), "", "goal: unchanged")
		if err := shard.Stop(); err != nil {
			b.Fatal(err)
		}
	}
}

// creator makes workspaces below root and learns from one watch when each is Ready, as a client that means well would.
type creator struct {
	client client.Client

	mu      sync.Mutex
	waiting map[string]chan struct{}
}

func newCreator(b *testing.B, shard *shardtesting.Shard) *creator {
	b.Helper()
	dynamicClient, err := dynamic.NewForConfig(shardtesting.At(shard.Admin(b), "root"))
	if err != nil {
		b.Fatal(err)
	}
	stream, err := dynamicClient.Resource(tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")).Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	c := &creator{client: shard.Client(b, shard.Admin(b)), waiting: map[string]chan struct{}{}}
	b.Cleanup(stream.Stop)
	go c.follow(stream)
	return c
}

func (c *creator) follow(stream watch.Interface) {
	for event := range stream.ResultChan() {
		workspace, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		if phase, _, _ := unstructured.NestedString(workspace.Object, "status", "phase"); phase == string(corev1alpha1.LogicalClusterPhaseReady) {
			c.mu.Lock()
			if ready := c.waiting[workspace.GetName()]; ready != nil {
				close(ready)
				delete(c.waiting, workspace.GetName())
			}
			c.mu.Unlock()
		}
	}
}

// create makes n workspaces with concurrent writers and returns how long each took from its create to Ready.
func (c *creator) create(b *testing.B, prefix string, n int) []time.Duration {
	b.Helper()
	latencies := make([]time.Duration, n)
	next := make(chan int)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for i := range next {
				latency, err := c.createOne(fmt.Sprintf("%s-%d", prefix, i))
				if err != nil {
					b.Error(err)
				}
				latencies[i] = latency
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return latencies
}

func (c *creator) createOne(name string) (time.Duration, error) {
	ready := make(chan struct{})
	c.mu.Lock()
	c.waiting[name] = ready
	c.mu.Unlock()
	begun := time.Now()
	workspace := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}},
	}
	if err := c.client.Create(shardtesting.In(context.Background(), "root"), workspace); err != nil {
		return 0, fmt.Errorf("creating workspace %s: %w", name, err)
	}
	select {
	case <-ready:
		return time.Since(begun), nil
	case <-time.After(time.Minute):
		return 0, fmt.Errorf("workspace %s is not Ready after a minute", name)
	}
}

// series counts the lines of /metrics.
func series(b *testing.B, config *rest.Config) int {
	b.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	restClient, err := rest.UnversionedRESTClientForConfigAndClient(unversioned(config), httpClient)
	if err != nil {
		b.Fatal(err)
	}
	body, err := restClient.Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	lines := 0
	for line := range bytes.Lines(body) {
		if line[0] != '#' {
			lines++
		}
	}
	return lines
}

func unversioned(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.NegotiatedSerializer = serializer
	return c
}
