package bench

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// consumers is the number of workspaces that bind the export.
var consumers = scaled(5000)

// exportedResource is the resource of the export.
var exportedResource = schema.GroupResource{Group: "bench.example.com", Resource: "widgets"}

const exportedResourcePath = "/apis/bench.example.com/v1/namespaces/default/widgets"

// BenchmarkBindings measures the cost of a binding in the first workspace that has one, in the second, and on average
// in all up to the last, and then the wildcard watch of a provider that serves all of them. Every consumer lists what
// it binds once and creates one object.
func BenchmarkBindings(b *testing.B) {
	recordDuration(b)
	for range b.N {
		etcd := startEtcd(b)
		shard := shardtesting.StartIn(b, b.TempDir(), etcd.configure)
		provider := shard.NewWorkspace(b, "root", "provider").Spec.Cluster
		export := shard.NewExport(b, provider, "widgets", exportedResource, "Widget")
		shard.NewExport(b, provider, "others", schema.GroupResource{Group: "other.example.com", Resource: "others"}, "Other")
		creator := newCreator(b, shard, "root")
		clusters := creator.create(b, "ws", consumers)
		creator.stop()
		binder := newBinder(b, shard, provider)
		binder.bind(b, clusters[:1], "others") // excludes one-time cost
		waitForReads()
		before := observe(b, shard, etcd)

		binder.bind(b, clusters[:1], export.Name)
		first := observe(b, shard, etcd)
		binder.bind(b, clusters[1:2], export.Name)
		second := observe(b, shard, etcd)
		begun := time.Now()
		took := binder.bind(b, clusters[2:], export.Name)
		rest := len(clusters) - 2
		record("bindings created until Bound and listed", rate(rest, begun), "1/s", fmt.Sprintf("%d clients, %d bindings of one export", writers, rest))
		record("binding create to Bound p50", milliseconds(quantile(took, 0.5)), "ms", "same run")
		record("binding create to Bound p99", milliseconds(quantile(took, 0.99)), "ms", "same run")
		binder.stop()
		done := observe(b, shard, etcd)
		waitForReads()
		all := observe(b, shard, etcd)

		heap := func(a, z observation, n int) float64 {
			return (float64(z.heapBytes) - float64(a.heapBytes)) / float64(n) / 1024
		}
		ofFirst, average := heap(before, first, 1), heap(second, all, rest)
		record("heap of a binding, 1st workspace", ofFirst, "KiB", "its API is compiled when first used")
		record("heap of a binding, 2nd workspace", heap(first, second, 1), "KiB", "one workspace: noisy")
		record(fmt.Sprintf("heap of a binding, 3rd to %dth workspace", consumers), average, "KiB", fmt.Sprintf("%.2f %% of the first; goal < 1 %%, the rest of an object's cost", 100*average/ofFirst))
		record(fmt.Sprintf("etcd bytes of a binding, 3rd to %dth workspace", consumers), float64(done.bytes-second.bytes)/float64(rest)/1024, "KiB", "database in use, without history")
		record("etcd writes of a binding", float64(done.writes-second.writes)/float64(rest), "", "revisions")
		record("goroutines, all consumers bound", float64(all.goroutines), "", fmt.Sprintf("goal: unchanged; %d with one", first.goroutines))
		record("metric lines, all consumers bound", float64(done.series), "", fmt.Sprintf("goal: unchanged; %d with one", first.series))
		watchConsumers(b, shard, export, clusters)
		runtime.KeepAlive(clusters)
		stopShard(b, shard)
	}
}

// binder binds exports of one provider in many workspaces and observes from one watch when each binding is Bound.
type binder struct {
	*shardtesting.Shard
	provider string
	cancel   context.CancelFunc
	client   client.Client

	mu      sync.Mutex
	waiting map[string]chan struct{} // by logical cluster and name
}

func newBinder(b *testing.B, shard *shardtesting.Shard, provider string) *binder {
	b.Helper()
	wildcardClient, err := dynamic.NewForConfig(shardtesting.At(shard.Masters(b), logicalcluster.Wildcard.String()))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	stream, err := wildcardClient.Resource(apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	result := &binder{Shard: shard, provider: provider, cancel: cancel, client: shard.Client(b, shard.Admin(b)), waiting: map[string]chan struct{}{}}
	go func() {
		for event := range stream.ResultChan() {
			binding, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			if phase, _, _ := unstructured.NestedString(binding.Object, "status", "phase"); phase == string(apisv1alpha2.APIBindingPhaseBound) {
				result.notifyBound(logicalcluster.Of(binding).String() + "/" + binding.GetName())
			}
		}
	}()
	return result
}

func (bi *binder) stop() { bi.cancel() }

func (bi *binder) notifyBound(key string) {
	bi.mu.Lock()
	defer bi.mu.Unlock()
	if bound := bi.waiting[key]; bound != nil {
		close(bound)
		delete(bi.waiting, key)
	}
}

// bind binds an export in the workspaces with concurrent writers and lists the exported resource there. It returns how
// long each binding took to become Bound.
func (bi *binder) bind(b *testing.B, clusters []createdWorkspace, export string) []time.Duration {
	b.Helper()
	took := make([]time.Duration, len(clusters))
	base := bi.Masters(b)
	runInParallel(b, len(clusters), func(i int) error {
		cluster := clusters[i].cluster
		bound, begun := make(chan struct{}), time.Now()
		bi.mu.Lock()
		bi.waiting[cluster+"/"+export] = bound
		bi.mu.Unlock()
		binding := &apisv1alpha2.APIBinding{
			ObjectMeta: metav1.ObjectMeta{Name: export},
			Spec:       apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: bi.provider, Name: export}}},
		}
		if err := bi.client.Create(shardtesting.In(b.Context(), cluster), binding); err != nil {
			return fmt.Errorf("binding %s in %s: %w", export, cluster, err)
		}
		select {
		case <-bound:
		case <-time.After(time.Minute):
			return fmt.Errorf("the binding of %s in %s is not Bound after a minute", export, cluster)
		}
		took[i] = time.Since(begun)
		if export == exportedResource.Resource {
			return apiServerAt(b, base, cluster).send(http.MethodGet, exportedResourcePath, "")
		}
		return nil
	})
	return took
}

// runInParallel calls do n times with concurrent writers.
func runInParallel(b *testing.B, n int, do func(i int) error) {
	b.Helper()
	next := make(chan int)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					b.Error(err)
				}
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
}

// virtualWorkspaceURL returns the URL of the export's virtual workspace.
func virtualWorkspaceURL(b *testing.B, shard *shardtesting.Shard, export *apisv1alpha2.APIExport) string {
	b.Helper()
	c, in := shard.Client(b, shard.Admin(b)), logicalcluster.Of(export).String()
	var url string
	eventually(b, "the export has a URL", func(ctx context.Context) error {
		slice := &apisv1alpha1.APIExportEndpointSlice{}
		if err := c.Get(shardtesting.In(ctx, in), client.ObjectKey{Name: export.Name}, slice); err != nil {
			return err
		}
		if len(slice.Status.APIExportEndpoints) == 0 {
			return fmt.Errorf("the endpoint slice has no URL; conditions %+v", slice.Status.Conditions)
		}
		url = slice.Status.APIExportEndpoints[0].URL
		return nil
	})
	return url
}
