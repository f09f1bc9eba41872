package embeddedcache_test

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var (
	exports     = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}
	cached      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps:0123abc"}
	testCluster = logicalcluster.MustParseName("abc")
)

func newClient(t *testing.T, config *rest.Config, shard string) *client.Client {
	t.Helper()
	c, err := client.New(config, shard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func newObject(apiVersion, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	return u
}

func TestEmbeddedCache(t *testing.T) {
	ca := shardtesting.NewCA(t, "clients")
	shard := shardtesting.Start(t, func(o *options.Options) { o.Authentication.ClientCert.ClientCA = ca.CertFile })
	masters := newClient(t, shard.Masters(t), "root")
	beta := newClient(t, ca.Client(t, shard.Masters(t), "system:kcp:shard:beta", "system:kcp:shard"), "beta")
	ctx := t.Context()

	changes := make(chan string, 10)
	var last client.Position
	go masters.NewReflector(exports, last, eventRecorder(changes)).Run(ctx)
	if got := <-changes; got != "replaced" {
		t.Fatalf("first %s", got)
	}
	if _, err := beta.Create(ctx, exports, testCluster, newObject("apis.kcp.io/v1alpha2", "APIExport", "widgets")); err != nil {
		t.Fatal(err)
	}
	if got := <-changes; got != "ADDED beta|abc|widgets" {
		t.Errorf("the change is %q", got)
	}
	config := newObject("v1", "ConfigMap", "x")
	config.SetNamespace("ns")
	if _, err := beta.Create(ctx, cached, testCluster, config); err != nil {
		t.Errorf("a cached resource of a user: %v", err)
	}
	if all, _, err := masters.List(ctx, cached); err != nil || len(all) != 1 || all[0].String() != "beta|abc|ns/x" {
		t.Errorf("cached resources are %v, %v", all, err)
	}
	if _, err := beta.ForShard("alpha").Create(ctx, exports, testCluster, newObject("apis.kcp.io/v1alpha2", "APIExport", "widgets")); !apierrors.IsForbidden(err) {
		t.Errorf("beta writes as alpha: %v", err)
	}
	user := newClient(t, shard.User(t), "")
	if _, _, err := user.List(ctx, exports); !apierrors.IsForbidden(err) {
		t.Errorf("a user lists: %v", err)
	}
	if _, _, err := newClient(t, shard.Admin(t), "").List(ctx, exports); !apierrors.IsForbidden(err) {
		t.Errorf("an admin of workspaces lists: %v", err)
	}

	for path, want := range map[string]int{
		"/services/cache/shards/beta/healthz":                                       200,
		"/services/cache/shards/beta/clusters/*/metrics":                            501,
		"/services/cache/apis/apis.kcp.io/v1alpha2/apiexports":                      400,
		"/services/cache/shards/B_/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports": 400,
		"/services/cache/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports":  200,
		"/services/cache/shards/*/clusters/*/apis":                                  200,
		"/services/cache/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/nothing":     404,
	} {
		if response, body := shardtesting.Send(t, shard.Masters(t), http.MethodGet, path, ""); response.StatusCode != want {
			t.Errorf("%s: %s, want %d: %s", path, response.Status, want, body)
		}
	}
}

type eventRecorder chan string

func (e eventRecorder) OnReplace([]*client.Object, client.Position) { e <- "replaced" }

func (e eventRecorder) OnEvent(change watch.EventType, object *client.Object, _ client.Position) {
	if object != nil && object.Shard == "beta" { // the shard itself publishes, too
		e <- string(change) + " " + object.String()
	}
}

func (eventRecorder) OnConnect() {}

func (e eventRecorder) OnDisconnect(err error) { e <- err.Error() }
