package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

// syncEnv is an installation, a service cluster and an agent between them.
type syncEnv struct {
	*installation.Installation
	admin     *rest.Config // of the front proxy, without a logical cluster
	client    client.Client
	service   *apiServer
	operator  chan struct{} // bounds the concurrent writes of status
	provider  string        // logical cluster
	consumers []string      // logical clusters
	cancel    context.CancelFunc
	ended     chan error

	mu      sync.Mutex
	objects map[string]*syncTimes
	// returned counts the objects whose status is back in the workspace.
	returned int
}

// syncTimes are the times at which something happened to an object.
type syncTimes struct{ created, copied, answered, returned time.Time }

const syncDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.bench.example.com}
spec:
  group: bench.example.com
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const syncPublication = `
apiVersion: syncagent.kcp.io/v1alpha1
kind: PublishedResource
metadata: {name: widgets}
spec:
  resource: {apiGroup: bench.example.com, kind: Widget}
`

const syncBinding = `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIBinding","metadata":{"name":"widgets"},"spec":{
	"reference":{"export":{"path":"root:provider","name":"widgets"}},
	"permissionClaims":[{"group":"","resource":"events","verbs":["*"],"selector":{"matchAll":true},"state":"Accepted"}]}}`

const syncedObject = `{"apiVersion":"bench.example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"size":3,"text":"some text of a usual length"}}`

const (
	definitionsPath    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	publicationsPath   = "/apis/syncagent.kcp.io/v1alpha1/publishedresources"
	syncedResourcePath = "/apis/bench.example.com/v1/widgets"
)

func startSyncEnv(b *testing.B) *syncEnv {
	b.Helper()
	log.SetLogger(logr.Discard())
	s := &syncEnv{
		Installation: installation.StartWith(b, installationBinaries(b), sharded.Options{Shards: []string{installation.Root, installation.Alpha, installation.Beta}}),
		service:      startStock(b, startEtcd(b)), objects: map[string]*syncTimes{}, operator: make(chan struct{}, writers),
	}
	s.admin = s.Admin(b, "root")
	s.admin.Host = s.URL
	var err error
	if s.client, err = newClusterClient(s.admin); err != nil {
		b.Fatal(err)
	}
	s.provider = shardtesting.NewWorkspace(b, s.client, "root", "provider").Spec.Cluster
	provider := s.Admin(b, "root:provider")
	eventually(b, "the export is created", func(context.Context) error {
		return s.at(b, "root:provider").send(http.MethodPost, "/apis/apis.kcp.io/v1alpha2/apiexports", `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"widgets"}}`)
	})
	definition, err := os.ReadFile("../../config/sync-agent/crd/syncagent.kcp.io_publishedresources.yaml")
	if err != nil {
		b.Fatal(err)
	}
	s.service.mustSend(b, http.MethodPost, definitionsPath, toJSON(b, definition))
	s.service.mustSend(b, http.MethodPost, definitionsPath, toJSON(b, []byte(syncDefinition)))
	s.service.mustSend(b, http.MethodPost, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"sync-agent"}}`)
	for _, path := range []string{publicationsPath, syncedResourcePath} {
		eventually(b, path+" is served", func(context.Context) error { return s.service.send(http.MethodGet, path, "") })
	}
	s.startAgent(b, provider)
	s.service.mustSend(b, http.MethodPost, publicationsPath, toJSON(b, []byte(syncPublication)))
	s.follow(b, s.service, syncedResourcePath, s.handleCopy)
	return s
}

func toJSON(b *testing.B, manifest []byte) string {
	b.Helper()
	out, err := yaml.YAMLToJSON(manifest)
	if err != nil {
		b.Fatal(err)
	}
	return string(out)
}

// startAgent runs the agent in this process.
func (s *syncEnv) startAgent(b *testing.B, provider *rest.Config) {
	b.Helper()
	directory := b.TempDir()
	o := options.New()
	o.KcpKubeconfig, o.Kubeconfig = filepath.Join(directory, "kcp"), filepath.Join(directory, "service")
	installation.WriteKubeconfig(b, provider, o.KcpKubeconfig)
	installation.WriteKubeconfig(b, s.service.config, o.Kubeconfig)
	o.EndpointSlice, o.Namespace, o.MetricsAddress = "widgets", "sync-agent", "0"
	completed, err := o.Complete()
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	s.cancel, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- syncagent.Run(ctx, syncagent.Config{Options: completed, Log: logr.Discard()}) }()
}

func (s *syncEnv) stop(b *testing.B) {
	b.Helper()
	s.cancel()
	if err := <-s.ended; err != nil {
		b.Error(err)
	}
}

// at is the front proxy as an administrator, for a logical cluster.
func (s *syncEnv) at(b *testing.B, cluster string) *apiServer {
	return apiServerAt(b, s.admin, cluster)
}

// addConsumers creates workspaces on all shards that bind the export.
func (s *syncEnv) addConsumers(b *testing.B, prefix string, n int) {
	b.Helper()
	clusters := newConsumers(b, s.Installation, s.admin, s.client, prefix, n, syncBinding, syncedResourcePath)
	if len(s.consumers) == 0 {
		s.consumers = clusters
		s.followConsumers(b)
	}
}

// newConsumers creates workspaces on all shards that have a binding, and waits until they serve a resource of it.
func newConsumers(b *testing.B, in *installation.Installation, admin *rest.Config, c client.Client, prefix string, n int, binding, path string) (clusters []string) {
	b.Helper()
	logProgress(b, fmt.Sprintf("creates %d workspaces", n))
	for _, shard := range in.Shards() {
		clusters = append(clusters, shardtesting.NewWorkspace(b, c, "root", prefix+"-"+shard, shardtesting.OnShard(shard)).Spec.Cluster)
	}
	creator := newCreatorAt(b, admin, c, "root")
	for _, workspace := range creator.create(b, prefix, n-len(clusters)) {
		clusters = append(clusters, workspace.cluster)
	}
	creator.stop()
	runInParallel(b, n, func(i int) error {
		consumer := apiServerAt(b, admin, clusters[i])
		if err := consumer.send(http.MethodPost, "/apis/apis.kcp.io/v1alpha2/apibindings", binding); err != nil {
			return err
		}
		return wait.PollUntilContextTimeout(b.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return consumer.send(http.MethodGet, path, "") == nil, nil
		})
	})
	return clusters
}

// followConsumers watches the objects of all consumers at the URLs of the export.
func (s *syncEnv) followConsumers(b *testing.B) {
	b.Helper()
	for _, url := range exportURLs(b, s.Installation, s.client, s.provider, "widgets") {
		server := newWildcardServer(b, "shard", s.admin, url+"/clusters/*")
		eventually(b, "the URL serves the resource", func(context.Context) error { return server.send(http.MethodGet, syncedResourcePath, "") })
		s.follow(b, server, syncedResourcePath, s.handleObject)
	}
}

// exportURLs returns the URLs of an export, once there is one for each shard.
func exportURLs(b *testing.B, in *installation.Installation, c client.Client, provider, export string) (urls []string) {
	b.Helper()
	eventually(b, "the export has a URL on each shard", func(ctx context.Context) error {
		slice := &apisv1alpha1.APIExportEndpointSlice{}
		if err := c.Get(shardtesting.In(ctx, provider), client.ObjectKey{Name: export}, slice); err != nil {
			return err
		}
		if n := len(slice.Status.APIExportEndpoints); n != len(in.Shards()) {
			return fmt.Errorf("there are %d", n)
		}
		for _, endpoint := range slice.Status.APIExportEndpoints {
			urls = append(urls, endpoint.URL)
		}
		return nil
	})
	return urls
}

// syncEvent is the part of a watch event that is needed here.
type syncEvent struct {
	Object struct {
		Metadata struct {
			Name, Namespace     string
			Labels, Annotations map[string]string
		}
		Status struct{ Phase string }
	}
}

// follow calls a function for the events of a watch.
func (s *syncEnv) follow(b *testing.B, server *apiServer, path string, handle func(b *testing.B, event *syncEvent)) {
	b.Helper()
	followEvents(b, server, path, func(event *syncEvent) { handle(b, event) })
}

// followEvents calls a function for the events of a watch.
func followEvents(b *testing.B, server *apiServer, path string, handle func(event *syncEvent)) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	response, err := server.request(ctx, http.MethodGet, path+"?watch=1", "")
	if err != nil {
		b.Fatal(err)
	}
	var group sync.WaitGroup
	b.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() {
		defer response.Body.Close()
		for decoder := json.NewDecoder(response.Body); ; {
			event := &syncEvent{}
			if err := decoder.Decode(event); err != nil {
				return
			}
			handle(event)
		}
	})
}

// handleCopy does the work of the service's operator: it writes the status of an object that has none.
func (s *syncEnv) handleCopy(b *testing.B, event *syncEvent) {
	metadata := event.Object.Metadata
	times := s.times(metadata.Labels["syncagent.kcp.io/remote-object-cluster"], metadata.Annotations["syncagent.kcp.io/remote-object-name"])
	if times == nil || event.Object.Status.Phase != "" {
		return
	}
	s.mu.Lock()
	again := !times.copied.IsZero()
	times.copied = time.Now()
	s.mu.Unlock()
	if again {
		return
	}
	s.operator <- struct{}{}
	go func() {
		defer func() { <-s.operator }()
		s.mu.Lock()
		times.answered = time.Now()
		s.mu.Unlock()
		path := "/apis/bench.example.com/v1/namespaces/" + metadata.Namespace + "/widgets/" + metadata.Name + "/status"
		if err := s.service.send(http.MethodPatch, path, `{"status":{"phase":"Ready"}}`); err != nil {
			b.Error(err)
		}
	}()
}

// handleObject records that the status of an object has arrived in its workspace.
func (s *syncEnv) handleObject(_ *testing.B, event *syncEvent) {
	times := s.times(event.Object.Metadata.Annotations[logicalcluster.AnnotationKey], event.Object.Metadata.Name)
	if times == nil || event.Object.Status.Phase == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if times.returned.IsZero() {
		times.returned = time.Now()
		s.returned++
	}
}

func (s *syncEnv) times(cluster, name string) *syncTimes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[cluster+"/"+name]
}

// create creates an object in the i-th consumer.
func (s *syncEnv) create(b *testing.B, i int, name string) error {
	cluster := s.consumers[i%len(s.consumers)]
	s.mu.Lock()
	s.objects[cluster+"/"+name] = &syncTimes{created: time.Now()}
	s.mu.Unlock()
	return s.at(b, cluster).send(http.MethodPost, exportedResourcePath, fmt.Sprintf(syncedObject, name))
}

// await waits until the status of n objects is back and removes their records.
func (s *syncEnv) await(b *testing.B, n int) (times []*syncTimes) {
	b.Helper()
	deadline := time.Now().Add(10 * time.Minute)
	for {
		s.mu.Lock()
		if s.returned == n {
			for _, one := range s.objects {
				times = append(times, one)
			}
			s.objects, s.returned = map[string]*syncTimes{}, 0
			s.mu.Unlock()
			return times
		}
		returned := s.returned
		s.mu.Unlock()
		if time.Now().After(deadline) {
			b.Fatalf("the status of only %d of %d objects is back", returned, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
