package shardserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	registryrest "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/apis/core"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/fence"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func withGate(o *options.Options) {
	o.FeatureGates = append(o.FeatureGates, options.GateLogicalClusterMigration+"=true")
}

// mover changes the annotations of a stored LogicalCluster, below all APIs.
type mover struct {
	etcd *clientv3.Client
	key  string
}

func newMover(t *testing.T, shard *shardtesting.Shard, cluster string) *mover {
	t.Helper()
	etcd, err := etcdkeys.Connect(shard.Server.StorageTransport())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	return &mover{etcd, "/registry/core.kcp.io/logicalclusters/customresources/" + cluster + "/" + corev1alpha1.LogicalClusterName}
}

// replace replaces a text in the stored object, and returns the revision of that.
func (m *mover) replace(t *testing.T, from, to string) int64 {
	t.Helper()
	found, err := m.etcd.Get(t.Context(), m.key)
	if err != nil || len(found.Kvs) != 1 || !strings.Contains(string(found.Kvs[0].Value), from) {
		t.Fatalf("reading %s: %v, %v", m.key, found, err)
	}
	written, err := m.etcd.Put(t.Context(), m.key, strings.Replace(string(found.Kvs[0].Value), from, to, 1))
	if err != nil {
		t.Fatal(err)
	}
	return written.Header.Revision
}

const annotations = `"annotations":{`

func annotation(key string) string { return annotations + `"` + key + `":"x",` }

// response is the answer to a request.
type response struct {
	status           int
	body, retryAfter string
}

func do(t *testing.T, config *rest.Config, method, path, body string) response {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	got, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	content, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{got.StatusCode, string(content), got.Header.Get("Retry-After")}
}

// openWatch opens a watch and returns what it delivers until it ends.
func openWatch(t *testing.T, config *rest.Config, path string) (ended <-chan string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Do(req)
	if err != nil || got.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", path, got, err)
	}
	result := make(chan string, 1)
	go func() {
		defer got.Body.Close()
		content, _ := io.ReadAll(got.Body)
		result <- string(content)
	}()
	return result
}

func configMapOf(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
}

const refused = fence.Message + "\n"

func TestFence(t *testing.T) {
	first := shardtesting.Start(t, withGate)
	second := shardtesting.Start(t, withGate, func(o *options.Options) {
		transport := first.Server.StorageTransport()
		o.Etcd.StorageConfig.Transport.ServerList = transport.ServerList
		o.Etcd.StorageConfig.Transport.CertFile = transport.CertFile
		o.Etcd.StorageConfig.Transport.KeyFile = transport.KeyFile
		o.Etcd.StorageConfig.Transport.TrustedCAFile = transport.TrustedCAFile
		o.Authentication.ServiceAccounts.KeyFiles = []string{filepath.Join(first.Directory, "sa.key")}
		o.Controllers.Enable = false
	})
	cluster := first.NewWorkspace(t, "root", "moves").Spec.Cluster
	neighbour := first.NewWorkspace(t, "root", "stays").Spec.Cluster
	name := logicalcluster.MustParseName(cluster)
	m := newMover(t, first, cluster)
	masters := first.Masters(t)
	objects := "/clusters/" + cluster + "/api/v1/namespaces/default/configmaps"

	t.Run("no replica acknowledges a write after Pause", func(t *testing.T) {
		var highest atomic.Int64
		var accepted, rejected atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		for i, shard := range []*shardtesting.Shard{first, second, first, second} {
			config := shardtesting.At(shard.Masters(t), cluster)
			client := shard.Kubernetes(t, config).CoreV1().RESTClient()
			writers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					created := &corev1.ConfigMap{}
					err := client.Post().MaxRetries(0).AbsPath("/api/v1/namespaces/default/configmaps").
						Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w%d-%d", i, n)}}).Do(ctx).Into(created)
					if err != nil {
						rejected.Add(1)
						continue
					}
					accepted.Add(1)
					revision, _ := strconv.ParseInt(created.ResourceVersion, 10, 64)
					for last := highest.Load(); revision > last && !highest.CompareAndSwap(last, revision); last = highest.Load() {
					}
				}
			})
		}
		more := func(counter *atomic.Int64) {
			before := counter.Load()
			shardtesting.Eventually(t, "more answers", func(context.Context) error {
				if counter.Load() < before+20 {
					return fmt.Errorf("%d", counter.Load())
				}
				return nil
			})
		}
		for range 3 {
			more(&accepted)
			revision := m.replace(t, annotations, annotation(corev1alpha1.WritesPausedAnnotationKey))
			if err := first.Server.Fence().Pause(t.Context(), name, revision); err != nil {
				t.Fatal(err)
			}
			at := first.Revision(t)
			more(&rejected)
			if last := highest.Load(); last > at {
				t.Errorf("a write of revision %d was acknowledged, Pause returned at %d", last, at)
			}
			m.replace(t, annotation(corev1alpha1.WritesPausedAnnotationKey), annotations)
		}
		more(&accepted)
		cancel()
		writers.Wait()
	})

	t.Run("a copy is inert until it opens", func(t *testing.T) { testArriving(t, first, second) })

	watch, wildcard := openWatch(t, masters, objects+"?watch=1"), openWatch(t, masters, "/clusters/*/api/v1/configmaps?watch=1")
	unaffected := openWatch(t, masters, "/clusters/*/api/v1/resourcequotas?watch=1")
	neighbours := openWatch(t, masters, "/clusters/"+neighbour+"/api/v1/configmaps?watch=1")

	t.Run("paused writes", func(t *testing.T) {
		revision := m.replace(t, annotations, annotation(corev1alpha1.WritesPausedAnnotationKey))
		if err := second.Server.Fence().Pause(t.Context(), name, revision); err != nil {
			t.Fatal(err)
		}
		review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`
		for user, config := range map[string]*rest.Config{"masters": masters, "loopback": first.Server.Generic.LoopbackClientConfig, "other replica": second.Masters(t)} {
			for path, want := range map[string]int{
				objects: 200, objects + "?resourceVersion=1&resourceVersionMatch=NotOlderThan": 200,
				"/clusters/" + cluster + "/api/v1": 200, "/clusters/" + cluster + "/openapi/v3": 200,
			} {
				if got := do(t, config, "GET", path, ""); got.status != want {
					t.Errorf("%s, GET %s: %+v", user, path, got)
				}
			}
			if got := do(t, config, "POST", objects, configMapOf("new")); got != (response{503, refused, "1"}) {
				t.Errorf("%s: a write gets %+v", user, got)
			}
			if got := do(t, config, "POST", "/clusters/"+cluster+"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review); got.status != 201 {
				t.Errorf("%s: a review gets %+v", user, got)
			}
		}
		resource, err := first.Server.Registry.Get(schema.GroupResource{Resource: "configmaps"})
		if err != nil {
			t.Fatal(err)
		}
		ctx := request.WithNamespace(logicalcluster.With(t.Context(), name), "default")
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "create", APIVersion: "v1", Resource: "configmaps", Namespace: "default"})
		create := func(ctx context.Context) error {
			_, err := resource.Store.(registryrest.Creater).Create(ctx, &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "below"}}, registryrest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			return err
		}
		if err := create(ctx); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), fence.Message) {
			t.Errorf("a write below HTTP: %v", err)
		}
		if err := create(fence.WithMover(ctx)); err != nil {
			t.Errorf("a write of the mover: %v", err)
		}
		select {
		case got := <-watch:
			t.Errorf("the pause ended a watch: %s", got)
		default:
		}
	})

	t.Run("moved away", func(t *testing.T) {
		revision := m.replace(t, annotations, annotation(corev1alpha1.MovedToAnnotationKey))
		if err := first.Server.Fence().Pause(t.Context(), name, revision); err != nil {
			t.Fatal(err)
		}
		for _, replica := range []*shardtesting.Shard{second, first} { // from here on, clients may write at the destination
			if got := do(t, replica.Masters(t), "GET", objects+"?resourceVersion=0", ""); got != (response{503, refused, "1"}) {
				t.Errorf("a read after the hand-over gets %+v", got)
			}
		}
		for what, ended := range map[string]<-chan string{"watch of the logical cluster": watch, "wildcard watch": wildcard} {
			if got := <-ended; strings.Contains(got, "DELETED") {
				t.Errorf("the %s delivers deletions: %s", what, got)
			}
		}
		checkMovedAway(t, first, cluster)
		if got := do(t, masters, "GET", "/clusters/*/api/v1/configmaps", ""); strings.Contains(got.body, cluster) || !strings.Contains(got.body, neighbour) {
			t.Error("the list over all logical clusters does not contain exactly what is served")
		}
		select {
		case got := <-unaffected:
			t.Errorf("a wildcard watch of a resource without objects ended: %s", got)
		case got := <-neighbours:
			t.Errorf("a watch of another logical cluster ended: %s", got)
		default:
		}
	})

	t.Run("outdated content is deleted", func(t *testing.T) { testOutdated(t, first) })

	t.Run("keys of replicas end with them, and a restart keeps the fence", func(t *testing.T) {
		if got := first.Keys(t, "/~replicas/"); len(got) != 2 {
			t.Errorf("replicas: %v", got)
		}
		if err := second.Stop(); err != nil {
			t.Fatal(err)
		}
		if got := first.Keys(t, "/~replicas/"); len(got) != 1 {
			t.Errorf("replicas: %v", got)
		}
		if err := first.Stop(); err != nil {
			t.Fatal(err)
		}
		restarted := shardtesting.StartIn(t, first.Directory, withGate)
		checkMovedAway(t, restarted, cluster)
		if got := restarted.Keys(t, "/~paused/"); len(got) > 1 { // its own
			t.Errorf("acknowledgements remain: %v", got)
		}
	})
}

func checkMovedAway(t *testing.T, shard *shardtesting.Shard, cluster string) {
	t.Helper()
	objects := "/clusters/" + cluster + "/api/v1/configmaps"
	for user, config := range map[string]*rest.Config{"masters": shard.Masters(t), "loopback": shard.Server.Generic.LoopbackClientConfig} {
		for _, path := range []string{
			objects, objects + "?resourceVersion=0", "/clusters/" + cluster + "/api/v1", "/clusters/" + cluster + "/openapi/v3",
			"/clusters/" + cluster + "/apis/core.kcp.io/v1alpha1/logicalclusters",
		} {
			if got := do(t, config, "GET", path, ""); got != (response{503, refused, "1"}) {
				t.Errorf("%s, GET %s: %+v", user, path, got)
			}
		}
		for _, path := range []string{objects + "?resourceVersion=7&resourceVersionMatch=Exact", objects + "?watch=1&resourceVersion=7"} {
			if got := do(t, config, "GET", path, ""); got.status != 410 || got.retryAfter != "" || !strings.Contains(got.body, fence.ExpiredMessage) || !strings.Contains(got.body, `"reason":"Expired"`) {
				t.Errorf("%s, GET %s: %+v", user, path, got)
			}
		}
	}
}
