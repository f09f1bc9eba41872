package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// definitionsPerWorkspace is the number of definitions per workspace: those of cert-manager and kro, and copies of them
// in other groups up to this number.
const definitionsPerWorkspace = 20

// definitionWorkspaces is the number of workspaces with definitions.
var definitionWorkspaces = scaled(1000)

// sources are the modules whose definitions are used, and the paths of the manifests in them. Only manifests are read,
// no code.
var sources = []struct{ module, files string }{
	{"github.com/cert-manager/cert-manager@v1.21.2", "deploy/crds/*.yaml"},
	{"github.com/kubernetes-sigs/kro@v0.9.4", "helm/crds/*.yaml"},
}

// BenchmarkDefinitions measures the cost of twenty definitions in the first workspace that has them, in the second, and
// on average in all up to the last. Every resource is listed once in every workspace.
func BenchmarkDefinitions(b *testing.B) {
	recordDuration(b)
	for range b.N {
		definitions := readDefinitions(b)
		etcd := startEtcd(b)
		shard := shardtesting.StartIn(b, b.TempDir(), etcd.configure)
		creator := newCreator(b, shard, "root")
		clusters := creator.create(b, "ws", definitionWorkspaces)
		creator.stop()
		base := shard.Masters(b)
		define(b, base, clusters[definitionWorkspaces-1].cluster, definitions[:1]) // excludes one-time cost
		before := observe(b, shard, etcd)

		begun := time.Now()
		define(b, base, clusters[0].cluster, definitions)
		record(fmt.Sprintf("%d definitions applied until all are listed, 1st workspace", definitionsPerWorkspace), time.Since(begun).Seconds(), "s", "one client")
		first := observe(b, shard, etcd)
		begun = time.Now()
		define(b, base, clusters[1].cluster, definitions)
		record(fmt.Sprintf("%d definitions applied until all are listed, 2nd workspace", definitionsPerWorkspace), time.Since(begun).Seconds(), "s", "one client")
		second := observe(b, shard, etcd)

		begun = time.Now()
		var group sync.WaitGroup
		next := make(chan string)
		for range writers {
			group.Go(func() {
				for cluster := range next {
					define(b, base, cluster, definitions)
				}
			})
		}
		for _, workspace := range clusters[2 : definitionWorkspaces-1] {
			next <- workspace.cluster
		}
		close(next)
		group.Wait()
		record("definitions applied until listed, all workspaces", rate((definitionWorkspaces-3)*definitionsPerWorkspace, begun), "1/s", fmt.Sprintf("%d clients", writers))
		all := observe(b, shard, etcd)

		cost := func(a, z observation, n int) float64 {
			return (float64(z.heapBytes) - float64(a.heapBytes)) / float64(n) / 1024
		}
		ofFirst := cost(before, first, 1)
		record(fmt.Sprintf("heap of %d definitions, 1st workspace", definitionsPerWorkspace), ofFirst, "KiB", "compiled when first used")
		record(fmt.Sprintf("heap of %d definitions, 2nd workspace", definitionsPerWorkspace), cost(first, second, 1), "KiB", "one workspace: noisy")
		average := cost(second, all, definitionWorkspaces-3)
		record(fmt.Sprintf("heap of %d definitions, 3rd to %dth workspace", definitionsPerWorkspace, definitionWorkspaces-1), average, "KiB", fmt.Sprintf("%.2f %% of the first; goal < 1 %%", 100*average/ofFirst))
		record("goroutines, all workspaces with definitions", float64(all.goroutines), "", fmt.Sprintf("goal: unchanged; %d with one", first.goroutines))
		record("metric lines, all workspaces with definitions", float64(all.series), "", fmt.Sprintf("goal: unchanged; %d with one", first.series))
		runtime.KeepAlive(definitions) // garbage collection of them would reduce the measured heap
		stopShard(b, shard)
	}
}

// define applies definitions in a logical cluster and lists their resources.
func define(b *testing.B, base *rest.Config, cluster string, definitions []apiextensionsv1.CustomResourceDefinition) {
	b.Helper()
	p := apiServerAt(b, base, cluster)
	for i := range definitions {
		body, err := json.Marshal(&definitions[i])
		if err != nil {
			b.Error(err)
			return
		}
		if err := p.send(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(body)); err != nil && !strings.Contains(err.Error(), "AlreadyExists") {
			b.Error(err)
			return
		}
	}
	for _, definition := range definitions {
		spec := definition.Spec
		path := fmt.Sprintf("/apis/%s/%s/%s", spec.Group, spec.Versions[0].Name, spec.Names.Plural)
		err := errors.New("not requested")
		for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); {
			if err = p.checkServed(path); err != nil {
				time.Sleep(5 * time.Millisecond)
			}
		}
		if err != nil {
			b.Errorf("%s in %s: %v", definition.Name, cluster, err)
		}
	}
}

var sharedClient sync.Map

// apiServerAt returns an apiServer for a logical cluster. It shares connections with all others of the same server.
func apiServerAt(b *testing.B, base *rest.Config, cluster string) *apiServer {
	b.Helper()
	known, ok := sharedClient.Load(base)
	if !ok {
		client, err := rest.HTTPClientFor(base)
		if err != nil {
			b.Fatal(err)
		}
		known, _ = sharedClient.LoadOrStore(base, client)
	}
	return &apiServer{name: "shard", config: shardtesting.At(base, cluster), client: known.(*http.Client)}
}

func readDefinitions(b *testing.B) []apiextensionsv1.CustomResourceDefinition {
	b.Helper()
	var all []apiextensionsv1.CustomResourceDefinition
	for _, source := range sources {
		download := exec.Command("go", "mod", "download", "-json", source.module)
		download.Dir = b.TempDir()
		output, err := download.Output()
		if err != nil {
			b.Fatalf("downloading %s: %v", source.module, err)
		}
		var module struct{ Dir string }
		if err := json.Unmarshal(output, &module); err != nil {
			b.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(module.Dir, source.files))
		if err != nil || len(files) == 0 {
			b.Fatalf("%s has no definitions at %s: %v", source.module, source.files, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				b.Fatal(err)
			}
			definition := apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(content, &definition); err != nil || definition.Kind != "CustomResourceDefinition" {
				continue // another kind, for example a List
			}
			all = append(all, definition)
		}
	}
	for i := 0; len(all) < definitionsPerWorkspace; i++ {
		copied := all[i].DeepCopy()
		copied.Spec.Group = fmt.Sprintf("copy%d.example.com", i)
		copied.ObjectMeta = metav1.ObjectMeta{Name: copied.Spec.Names.Plural + "." + copied.Spec.Group}
		all = append(all, *copied)
	}
	return all[:definitionsPerWorkspace]
}
