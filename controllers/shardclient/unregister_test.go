package shardclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
)

// TestUnregister checks that the Shard that a shard owns is deleted, and the one in root only if no other way exists.
func TestUnregister(t *testing.T) {
	const owned, inRoot = "DELETE /clusters/system:shard/apis/core.kcp.io/v1alpha1/shards/alpha", "DELETE /clusters/root/apis/core.kcp.io/v1alpha1/shards/alpha"
	for name, tc := range map[string]struct {
		mark   string // of the Shard in root
		ready  string // its condition
		down   bool
		want   []string
		failed string
	}{
		"a running shard":                     {mark: `"core.kcp.io/shard-representation":"true"`, ready: "True", want: []string{owned}},
		"a shard that is down":                {mark: `"core.kcp.io/shard-representation":"true"`, ready: "Unknown", down: true, want: []string{inRoot}},
		"a shard that reports, but no answer": {mark: `"core.kcp.io/shard-representation":"true"`, ready: "True", down: true, failed: "which still reports"},
		"a shard of an earlier version":       {ready: "True", want: []string{inRoot}},
	} {
		t.Run(name, func(t *testing.T) {
			var deleted []string
			server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method == http.MethodDelete:
					deleted = append(deleted, r.Method+" "+r.URL.Path)
					fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Success"}`)
				case len(deleted) > 0:
					w.WriteHeader(http.StatusNotFound)
					fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
				default:
					fmt.Fprintf(w, `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"alpha","annotations":{%s}},"status":{"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, tc.mark, tc.ready)
				}
			})
			var secrets []client.Object
			for _, name := range []string{"root-kcp-operator", "root-server-ca", "root-ca", "root-server", "root-proxy-kubeconfig", "alpha-server"} {
				secrets = append(secrets, server.secret(name, server.certificate))
			}
			clients := New(apply.Cluster{Client: memory.NewClient(t, secrets...)})
			clients.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if tc.down && strings.HasPrefix(address, "alpha-") {
					return nil, &net.OpError{Op: "dial", Net: network, Addr: &net.TCPAddr{}, Err: net.ErrClosed}
				}
				return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
			}
			root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
			err := clients.Unregister(t.Context(), root, &operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha", Namespace: "kcp"}})
			if tc.failed == "" && err != nil || tc.failed != "" && (err == nil || !strings.Contains(err.Error(), tc.failed)) {
				t.Errorf("got error %v, want %q", err, tc.failed)
			}
			if !slices.Equal(deleted, tc.want) {
				t.Errorf("deleted %v, want %v", deleted, tc.want)
			}
		})
	}
}
