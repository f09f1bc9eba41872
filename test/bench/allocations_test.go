package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// requests is the number of requests measured of each kind.
var requests = scaled(10000)

// BenchmarkAllocations measures what requests of tenants allocate in a shard, from its first filter to the last byte of
// the response, without network and etcd. Every garbage collection delays the requests in flight, so that allocations
// of busy tenants affect idle ones.
func BenchmarkAllocations(b *testing.B) {
	recordDuration(b)
	for range b.N {
		shard := shardtesting.StartIn(b, b.TempDir(), startEtcd(b).configure)
		creator := newCreator(b, shard, "root")
		cluster := creator.create(b, "tenant", 1)[0].cluster
		creator.stop()
		tenant, admin := newWorkspaceTenant(b, shard, cluster), &inProcessClient{shard, cluster, shard.Admin(b)}
		admin.must(b, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets, http.StatusCreated)
		eventually(b, "widgets are served", func(context.Context) error {
			if code, answer := tenant.do(http.MethodGet, loads[1].collection, ""); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, answer)
			}
			return nil
		})
		for _, l := range loads {
			tenant.must(b, http.MethodPost, l.collection, l.object("read"), http.StatusCreated)
			for name, sender := range map[string]*inProcessClient{"an administrator of the workspace": tenant, "an administrator of the installation": admin} {
				measureAllocations(b, fmt.Sprintf("get of %s by %s", l.name, name), requests, func(int) {
					sender.must(b, http.MethodGet, l.collection+"/read", "", http.StatusOK)
				})
			}
			measureAllocations(b, "create of "+l.name+" by an administrator of the workspace", requests/5, func(i int) {
				tenant.must(b, http.MethodPost, l.collection, l.object(fmt.Sprint("x", i)), http.StatusCreated)
			})
		}
		stopShard(b, shard)
	}
}

// measureAllocations records what each of n calls allocates, on average. Allocations of other goroutines are included.
func measureAllocations(b *testing.B, what string, n int, call func(i int)) {
	b.Helper()
	for i := range 20 {
		call(-1 - i) // excludes one-time allocations
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range n {
		call(i)
	}
	runtime.ReadMemStats(&after)
	record("allocated by a "+what, float64(after.TotalAlloc-before.TotalAlloc)/float64(n), "B", "in process, without client and etcd")
	record("allocations of a "+what, float64(after.Mallocs-before.Mallocs)/float64(n), "", "same run")
}

// inProcessClient sends requests to the handler of a shard in this process.
type inProcessClient struct {
	shard   *shardtesting.Shard
	cluster string
	user    *rest.Config
}

// newWorkspaceTenant returns a user whom RBAC of the workspace makes its administrator.
func newWorkspaceTenant(b *testing.B, shard *shardtesting.Shard, cluster string) *inProcessClient {
	b.Helper()
	admin, in := shard.Client(b, shard.Admin(b)), shardtesting.In(b.Context(), cluster)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "user"}},
	}
	if err := admin.Create(in, binding); err != nil {
		b.Fatal(err)
	}
	eventually(b, "the workspace has its default objects", func(context.Context) error {
		return admin.Get(in, client.ObjectKey{Namespace: "default", Name: "kube-root-ca.crt"}, &corev1.ConfigMap{})
	})
	return &inProcessClient{shard, cluster, shard.User(b)}
}

func (i *inProcessClient) do(method, path, body string) (int, string) {
	request, err := http.NewRequestWithContext(context.Background(), method, "/clusters/"+i.cluster+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header = http.Header{"Authorization": {"Bearer " + i.user.BearerToken}, "Accept": {"application/json"}, "Content-Type": {"application/json"}}
	request.RemoteAddr = "192.0.2.1:1"
	recorder := httptest.NewRecorder()
	i.shard.Server.Generic.Handler.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

func (i *inProcessClient) must(b *testing.B, method, path, body string, want int) {
	if code, answer := i.do(method, path, body); code != want {
		b.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
}

// object returns an object with that name.
func (l load) object(name string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%s}`, l.apiVersion, l.kind, name, l.payload)
}
