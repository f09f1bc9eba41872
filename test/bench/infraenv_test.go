package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/options"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

// infraEnv is an installation of three shards, a kube-apiserver as the runtime cluster, and an infrastructure provider in this process.
type infraEnv struct {
	*installation.Installation
	admin    *rest.Config // of the front proxy, without a logical cluster
	client   client.Client
	provider string // logical cluster
	tenants  []string
	cancel   context.CancelFunc
	ended    chan error

	mu      sync.Mutex
	created map[string]time.Time // by logical cluster and name
	ready   map[string]time.Duration
}

const (
	infraGroup     = infrastructurev1alpha1.GroupName
	infraPath      = "/apis/" + infraGroup + "/v1alpha1/"
	infraTemplates = infraPath + "templates"
	infraBinding   = `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIBinding","metadata":{"name":"infrastructure"},"spec":{
		"reference":{"export":{"path":"root:provider","name":"` + options.DefaultExport + `"}}}}`
	infraInstance = `{"apiVersion":"` + infraGroup + `/v1alpha1","kind":%q,"metadata":{"name":%q},"spec":{"size":"small"}}`
	infraTemplate = `{"apiVersion":"` + infraGroup + `/v1alpha1","kind":"Template","metadata":{"name":%[1]q},"spec":{"displayName":%[1]q,"version":"1.0.0","backend":%[2]q,
		"instanceCRD":{"group":"` + infraGroup + `","version":"v1alpha1","kind":%[3]q,"resource":%[1]q},
		"schema":{"type":"object","properties":{"size":{"type":"string","enum":["small","large"],"default":"small"}}},"backendConfig":%[4]s}}`
	// infraManifests are what an instance of the manifest backend is made of: an object that is configuration, and one with a password.
	infraManifests = `{"manifests":[
		{"id":"main","template":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"main-${self.metadata.name}"},"data":{"size":"${self.spec.size}"}},"readyWhen":["other.main.data.size == self.spec.size"]},
		{"id":"secret","template":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"main-${self.metadata.name}","annotations":{"` + infraGroup + `/generate":"password"}}}}],
		"outputs":{"endpoint":"${self.metadata.name}.example.org:6379"}}`
)

func startInfraEnv(b *testing.B, delay time.Duration) *infraEnv {
	b.Helper()
	log.SetLogger(logr.Discard())
	e := &infraEnv{created: map[string]time.Time{}, ready: map[string]time.Duration{}}
	shards := []string{installation.Root, installation.Alpha, installation.Beta}
	flags := map[string][]string{}
	if delay > 0 {
		etcd := startEtcd(b).delayed(b, delay)
		for _, shard := range shards {
			flags[shard] = []string{"--etcd-servers=" + etcd.url, "--etcd-prefix=/" + shard}
		}
	}
	e.Installation = installation.StartWith(b, installationBinaries(b), sharded.Options{Shards: shards, ShardFlags: []string{"--feature-gates=CacheAPIs=true"}, Flags: flags})
	e.admin = e.Admin(b, "root")
	e.admin.Host = e.URL
	var err error
	if e.client, err = newClusterClient(e.admin); err != nil {
		b.Fatal(err)
	}
	e.provider = shardtesting.NewWorkspace(b, e.client, "root", "provider").Spec.Cluster
	e.startProvider(b, e.Admin(b, "root:provider"), startStock(b, startEtcd(b).delayed(b, delay)).config)
	return e
}

// startProvider runs the provider with the backends manifest and instant.
func (e *infraEnv) startProvider(b *testing.B, workspace, runtime *rest.Config) {
	b.Helper()
	workspace.QPS = -1
	c, err := client.New(workspace, client.Options{Scheme: infrastructure.NewScheme(infraGroup)})
	if err != nil {
		b.Fatal(err)
	}
	runtimeClient, err := runtimecluster.NewClient(runtime)
	if err != nil {
		b.Fatal(err)
	}
	runtimeMetadata, err := metadata.NewForConfig(runtime)
	if err != nil {
		b.Fatal(err)
	}
	backends := &backend.Registry{}
	for _, registered := range []backend.Backend{
		manifest.New(runtimecluster.Config{Group: infraGroup, Export: options.DefaultExport, Runtime: runtimeClient, Metadata: runtimeMetadata, Log: logr.Discard()}),
		instant{},
	} {
		if err := backends.Register(registered); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	e.cancel, e.ended = cancel, make(chan error, 1)
	go func() {
		e.ended <- infrastructure.Run(ctx, infrastructure.Config{
			Workspace: workspace, Catalogue: catalogue.Options{Group: infraGroup, Export: options.DefaultExport, Binders: "system:authenticated"}, Backends: backends,
			Instances: &instance.View{Workspace: workspace, Client: c, Export: options.DefaultExport}, MetricsAddress: "0", HealthAddress: "0", Log: logr.Discard(),
		})
	}()
	eventually(b, "templates are served", func(context.Context) error { return e.at(b, "root:provider").send(http.MethodGet, infraTemplates, "") })
}

// instant is a backend whose instances are Ready immediately and have no objects, so that the cost of the platform remains.
type instant struct{}

func (instant) Name() string { return "instant" }

func (instant) SetupTemplate(context.Context, *infrastructurev1alpha1.Template) (backend.Status, error) {
	return backend.Status{Ready: true}, nil
}

func (instant) TeardownTemplate(context.Context, *infrastructurev1alpha1.Template) error { return nil }

func (i instant) Run(ctx context.Context, export *rest.Config) error {
	return instance.Run(ctx, instance.Options{Backend: i.Name(), Group: infraGroup, Export: options.DefaultExport, Workspace: export, Handler: i,
		Changed: make(chan instance.Identity), SweepInterval: time.Hour, Log: logr.Discard()})
}

func (instant) Apply(_ context.Context, inst instance.Instance) (instance.State, error) {
	return instance.State{Phase: infrastructurev1alpha1.PhaseReady, Outputs: map[string]any{"endpoint": inst.Object.GetName() + ".example.org:6379"}}, nil
}

func (instant) Delete(context.Context, instance.Instance) (bool, error) { return true, nil }
func (instant) Instances(context.Context) ([]instance.Identity, error)  { return nil, nil }
func (instant) Tenants(context.Context) ([]logicalcluster.Name, error)  { return nil, nil }
func (instant) Purge(context.Context, logicalcluster.Name) error        { return nil }

func (e *infraEnv) stop(b *testing.B) {
	b.Helper()
	e.cancel()
	if err := <-e.ended; err != nil {
		b.Error(err)
	}
}

// at is the front proxy as an administrator, for a logical cluster.
func (e *infraEnv) at(b *testing.B, cluster string) *apiServer {
	return apiServerAt(b, e.admin, cluster)
}

// offer creates a Template, whose name is the resource of its kind, and waits until it is Ready.
func (e *infraEnv) offer(b *testing.B, backend, resource, kind, config string) error {
	b.Helper()
	return e.at(b, "root:provider").send(http.MethodPost, infraTemplates, fmt.Sprintf(infraTemplate, resource, backend, kind, config))
}

// offered waits until all Templates are Ready.
func (e *infraEnv) offered(b *testing.B, n int) {
	b.Helper()
	last := 0
	err := wait.PollUntilContextTimeout(b.Context(), 50*time.Millisecond, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		templates := &struct {
			Items []infrastructurev1alpha1.Template
		}{}
		if err := e.list(ctx, b, "root:provider", infraTemplates, templates); err != nil {
			return false, nil // tried again
		}
		last = 0
		for i := range templates.Items {
			if status := templates.Items[i].Status; status.Registered.SchemaInAPIExport && status.Backend.Ready {
				last++
			}
		}
		return last == n, nil
	})
	if err != nil {
		b.Fatalf("%d of %d templates are ready: %v", last, n, err)
	}
}

// list decodes the response to a list.
func (e *infraEnv) list(ctx context.Context, b *testing.B, cluster, path string, into any) error {
	b.Helper()
	response, err := e.at(b, cluster).request(ctx, http.MethodGet, path, "")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// followInstances watches the instances of all tenants at the URLs of the export.
func (e *infraEnv) followInstances(b *testing.B, resources ...string) {
	b.Helper()
	for _, url := range exportURLs(b, e.Installation, e.client, e.provider, options.DefaultExport) {
		server := newWildcardServer(b, "shard", e.admin, url+"/clusters/*")
		for _, resource := range resources {
			eventually(b, "the URL serves the resource", func(context.Context) error { return server.send(http.MethodGet, infraPath+resource, "") })
			followEvents(b, server, infraPath+resource, e.handle)
		}
	}
}

// handle records that an instance is Ready.
func (e *infraEnv) handle(event *syncEvent) {
	key := event.Object.Metadata.Annotations[logicalcluster.AnnotationKey] + "/" + event.Object.Metadata.Name
	e.mu.Lock()
	defer e.mu.Unlock()
	created, known := e.created[key]
	if _, again := e.ready[key]; known && !again && event.Object.Status.Phase == "Ready" {
		e.ready[key] = time.Since(created)
	}
}

// order creates an instance.
func (e *infraEnv) order(b *testing.B, cluster, resource, kind, name string) error {
	e.mu.Lock()
	e.created[cluster+"/"+name] = time.Now()
	e.mu.Unlock()
	return e.at(b, cluster).send(http.MethodPost, infraPath+resource, fmt.Sprintf(infraInstance, kind, name))
}

// await waits until instances are Ready, and returns how long each took.
func (e *infraEnv) await(b *testing.B, keys ...string) (took []time.Duration) {
	b.Helper()
	deadline := time.Now().Add(10 * time.Minute)
	for {
		took = took[:0]
		e.mu.Lock()
		for _, key := range keys {
			if duration, ready := e.ready[key]; ready {
				took = append(took, duration)
			}
		}
		e.mu.Unlock()
		if len(took) == len(keys) {
			return took
		}
		if time.Now().After(deadline) {
			b.Fatalf("only %d of %d instances are ready", len(took), len(keys))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// reconciles returns the number of reconciliations of instances so far.
func reconciles(b *testing.B) float64 {
	b.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	total := 0.0
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if label.GetName() == "controller" && label.GetValue() == "instances" {
					total += series.GetCounter().GetValue()
				}
			}
		}
	}
	return total
}
