package shardclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
)

// TestCompareShards asks each shard for its own logical clusters and Workspaces, the latter by their identity. Package shardcompare has tests of what
// it does with them.
func TestCompareShards(t *testing.T) {
	const cluster = `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster","annotations":{"kcp.io/cluster":"c1"}},"spec":{"owner":{"apiVersion":"tenancy.kcp.io/v1alpha1","resource":"workspaces","cluster":"root","name":"gone","uid":"u1"}}}`
	const workspace = `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"lost","uid":"u2","annotations":{"kcp.io/cluster":"root"}},"spec":{"cluster":"c2"},"status":{"phase":"Ready"}}`
	for name, refuses := range map[string]bool{"shards that answer": false, "a shard that refuses": true} {
		t.Run(name, func(t *testing.T) {
			server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				at, _, _ := strings.Cut(r.Host, "-kcp.")
				switch path := r.URL.Path; {
				case refuses && at == "alpha-shard":
					w.WriteHeader(http.StatusForbidden)
				case path == "/clusters/root/apis/apis.kcp.io/v1alpha2/apiexports/tenancy.kcp.io" && at == "root":
					fmt.Fprint(w, `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"tenancy.kcp.io"},"status":{"identityHash":"hash"}}`)
				case path == "/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters" && at == "alpha-shard":
					fmt.Fprintf(w, `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalClusterList","items":[%s]}`, cluster)
				case path == "/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces:hash" && at == "root":
					fmt.Fprintf(w, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceList","items":[%s]}`, workspace)
				case strings.HasPrefix(path, "/clusters/*/apis/"):
					fmt.Fprint(w, `{"apiVersion":"v1","kind":"List","items":[]}`)
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			})
			var secrets []client.Object
			for _, name := range []string{"root-kcp-operator", "root-server-ca", "root-ca", "root-server", "root-proxy-kubeconfig", "alpha-server"} {
				secrets = append(secrets, server.secret(name, server.certificate))
			}
			clients := New(apply.Cluster{Client: memory.NewClient(t, secrets...)})
			clients.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
			}
			root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
			alpha := &operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha", Namespace: "kcp"}}
			alpha.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
			found, err := clients.CompareShards(t.Context(), root, []desired.Shard{desired.NewRootShard(root), desired.NewShard(alpha, root)}, "alpha", time.Now())
			if refuses {
				if err == nil || !strings.HasPrefix(err.Error(), "comparing the shards of RootShard root: ") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || len(found.Gaps) != 1 || found.Gaps[0] != "root/lost (c2)" || len(found.Orphans) != 1 || found.Orphans[0] != "c1 on shard alpha (root/gone)" || len(found.Doubles) != 0 {
				t.Errorf("%v: got %+v", err, found)
			}
		})
	}
}
