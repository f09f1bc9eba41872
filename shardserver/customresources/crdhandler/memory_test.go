package crdhandler_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// newLargeDefinition defines widgets with a schema of about 60 KB.
func newLargeDefinition(group string) *apiextensionsv1.CustomResourceDefinition {
	definition := newDefinition(group)
	properties := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	for i := range 150 {
		properties[fmt.Sprintf("field%d", i)] = apiextensionsv1.JSONSchemaProps{
			Type: "object", Description: strings.Repeat("What this field is for. ", 10),
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "string"}, "b": {Type: "integer"}},
		}
	}
	return definition
}

func init() { runtime.MemProfileRate = 64 << 10 }

// heapInUse returns the size of the heap without the embedded etcd, which retains the last requests.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // memory released by cleanups
	runtime.GC() // heap profiles describe the second last collection
	records := make([]runtime.MemProfileRecord, 200000)
	n, complete := runtime.MemProfile(records, false)
	if !complete {
		panic(fmt.Sprintf("%d records of the heap profile", n))
	}
	var bytes int64
	for _, record := range records[:n] {
		if !isEtcdStack(record.Stack()) {
			bytes += record.InUseBytes()
		}
	}
	return bytes
}

func isEtcdStack(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for {
		frame, more := frames.Next()
		if strings.HasPrefix(frame.Function, "go.etcd.io/etcd/server") || strings.HasPrefix(frame.Function, "go.etcd.io/raft") {
			return true
		}
		if !more {
			return false
		}
	}
}

// TestEqualDefinitionsShareMemory measures the memory of one more logical cluster with an equal definition.
func TestEqualDefinitionsShareMemory(t *testing.T) {
	const clusters = 80
	const maxBytes = 32 << 10 // bytes for each
	shard := shardtesting.Start(t)
	client, baseline := shard.Client(t, shard.Masters(t)), newRegistryBaseline(t, shard)
	annotation := strings.Repeat("applied ", 4000)
	define := func(cluster string) {
		definition := newLargeDefinition("example.com")
		definition.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": annotation}
		if err := client.Create(shardtesting.In(t.Context(), cluster), definition); err != nil {
			t.Fatal(err)
		}
	}
	waitServed := func(want int) {
		shardtesting.Eventually(t, "all definitions are served", func(ctx context.Context) error {
			var list apiextensionsv1.CustomResourceDefinitionList
			if err := client.List(logicalcluster.With(ctx, logicalcluster.MustParseName(fmt.Sprintf("c%d", want-1))), &list); err != nil {
				return err
			}
			definitions, contents, storages := baseline.addedSizes()
			if definitions != want || contents != 1 || storages != 1 || len(list.Items) != 1 || len(list.Items[0].Status.Conditions) < 2 {
				return fmt.Errorf("%d definitions, %d compiled CRDs, %d storages", definitions, contents, storages)
			}
			return nil
		})
	}
	for i := range 10 {
		define(fmt.Sprintf("c%d", i))
	}
	waitServed(10)
	before, goroutines := heapInUse(), runtime.NumGoroutine()
	for i := 10; i < 10+clusters; i++ {
		define(fmt.Sprintf("c%d", i))
	}
	waitServed(10 + clusters)
	bytesPerDefinition := (heapInUse() - before) / clusters
	t.Logf("an equal definition takes %d bytes", bytesPerDefinition)
	if bytesPerDefinition > maxBytes {
		t.Errorf("an equal definition takes %d bytes, want at most %d", bytesPerDefinition, maxBytes)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 20 {
		t.Errorf("%d definitions added %d goroutines", clusters, more)
	}
}

// TestCompiledCRDsClose checks that nothing remains in memory after the last definition is deleted.
func TestCompiledCRDsClose(t *testing.T) {
	shard := shardtesting.Start(t)
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	registry, baseline := shard.Server.Definitions(), newRegistryBaseline(t, shard)
	expect := func(definitions, contents, storages int) {
		t.Helper()
		shardtesting.Eventually(t, "the registry", func(context.Context) error {
			if d, c, s := baseline.addedSizes(); d != definitions || c != contents || s != storages {
				return fmt.Errorf("%d definitions, %d compiled CRDs, %d storages; want %d, %d, %d", d, c, s, definitions, contents, storages)
			}
			return nil
		})
	}
	served := func(w *workspace) []crdregistry.ServedResource {
		return registry.ListServed(logicalcluster.With(t.Context(), logicalcluster.MustParseName(w.name)))
	}
	defineAndDelete := func() {
		for _, w := range []*workspace{a, b} {
			w.define(newDefinition("example.com"))
			w.create(newWidget("one", nil))
		}
		expect(2, 1, 1)
		if x, y := served(a), served(b); len(x) != 1 || len(y) != 1 || x[0].CRD != y[0].CRD {
			t.Errorf("equal definitions have different compiled CRDs: %v, %v", x, y)
		}
		if resource, _ := shard.Server.Registry.Resolve(t.Context(), schema.GroupResource{Group: "example.com", Resource: "widgets"}); resource != nil {
			t.Error("no logical cluster serves widgets")
		}
		for _, w := range []*workspace{a, b} {
			if err := w.definitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		expect(0, 0, 0)
	}
	defineAndDelete()
	before := goroutineStacks()
	defineAndDelete()
	defineAndDelete()
	shardtesting.Eventually(t, "no goroutine remains", func(context.Context) error {
		if after := goroutineStacks(); len(after) > len(before) {
			return fmt.Errorf("%d goroutines, then %d:\n%s", len(before), len(after), strings.Join(after, "\n\n"))
		}
		return nil
	})
}

// registryBaseline holds the counts of a registry, to compute differences.
type registryBaseline struct {
	registry                    *crdregistry.Registry
	definitions, crds, storages int
}

// newRegistryBaseline counts what is added after the shard's own bindings.
func newRegistryBaseline(t *testing.T, shard *shardtesting.Shard) registryBaseline {
	t.Helper()
	client, b := shard.Client(t, shard.Masters(t)), registryBaseline{registry: shard.Server.Definitions()}
	shardtesting.Eventually(t, "the shard's own bindings are served", func(ctx context.Context) error {
		schemas := map[string]bool{}
		for _, cluster := range []string{"root", "system:shard"} {
			var list apisv1alpha2.APIBindingList
			if err := client.List(shardtesting.In(ctx, cluster), &list); err != nil {
				return err
			}
			for _, binding := range list.Items {
				if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
					return fmt.Errorf("binding %s of %s is %q", binding.Name, cluster, binding.Status.Phase)
				}
				for _, bound := range binding.Status.BoundResources {
					builtIn, err := shard.Server.Registry.Get(schema.GroupResource{Group: bound.Group, Resource: bound.Resource})
					if err != nil || builtIn.Segment() != bound.Schema.IdentityHash { // a built-in resource needs no definition
						schemas[bound.Schema.UID] = true
					}
				}
			}
		}
		if b.definitions, b.crds, b.storages = b.registry.Sizes(); min(b.definitions, b.crds, b.storages) < len(schemas) || len(schemas) == 0 {
			return fmt.Errorf("%d definitions, %d compiled CRDs, %d storages; want %d", b.definitions, b.crds, b.storages, len(schemas))
		}
		return nil
	})
	return b
}

func (b registryBaseline) addedSizes() (definitions, contents, storages int) {
	definitions, contents, storages = b.registry.Sizes()
	return definitions - b.definitions, contents - b.crds, storages - b.storages
}

// goroutineStacks returns the goroutines that serve custom resources.
func goroutineStacks() []string {
	buffer := make([]byte, 16<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	var found []string
	for _, stack := range strings.Split(string(buffer), "\n\n") {
		if strings.Contains(stack, "customresources") || strings.Contains(stack, "apiextensions-apiserver") || strings.Contains(stack, "storage/cacher") {
			found = append(found, stack)
		}
	}
	return found
}
