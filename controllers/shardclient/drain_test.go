package shardclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
)

// TestDrain checks what a drain asks: Shards in the admin workspace, migrations in root, and logical clusters of the shard itself; and what
// it writes.
func TestDrain(t *testing.T) {
	const (
		shards     = "/services/admin/apis/core.kcp.io/v1alpha1/shards"
		migrations = "/clusters/root/apis/migration.kcp.io/v1alpha1/logicalclustermigrations"
		forbidden  = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"the feature gate LogicalClusterMigration is disabled"}`
	)
	shard := func(name, annotations string) string {
		return fmt.Sprintf(`{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":%q,"annotations":{%s}},"spec":{"baseURL":"https://x"},"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, name, annotations)
	}
	for name, tc := range map[string]struct {
		closed, migrations, elsewhere, refusal string
		call                                   string // "drain" or "stop"
		want                                   []string
		result                                 string
	}{
		"a drain begins": {call: "drain", want: []string{"POST dry run", "PATCH alpha drain", "POST one beta"}, result: "0 of 1 moved, 1 moving"},
		"without the feature": {call: "drain", refusal: forbidden, want: []string{"POST dry run"},
			result: "the installation does not move logical clusters: start every shard with --feature-gates=LogicalClusterMigration=true"},
		"as many run as may": {call: "drain", closed: `"experimental.core.kcp.io/unschedulable":"drain"`, migrations: migrationOf("one", "Migrating") + "," + migrationOf("two", "Migrating"), result: "0 moved, 2 moving"},
		"a drain is stopped": {call: "stop", closed: `"experimental.core.kcp.io/unschedulable":"drain"`, migrations: migrationOf("one", "Migrating"),
			want: []string{"PATCH alpha drain stopped", "DELETE m-one"}, result: "1 running"},
		"it opens the shard": {call: "stop", closed: `"experimental.core.kcp.io/unschedulable":"drain stopped"`, migrations: migrationOf("one", "Completed"),
			want: []string{"DELETE m-one", "PATCH alpha null"}, result: "0 running"},
		"but not one that somebody else had closed": {call: "stop", closed: `"experimental.core.kcp.io/unschedulable":"broken disk"`, result: "0 running"},
		"which stays as it was": {call: "stop", closed: `"experimental.core.kcp.io/unschedulable":"broken disk"`, migrations: migrationOf("one", "Completed"),
			want: []string{"PATCH alpha drain stopped; before: broken disk", "DELETE m-one", "PATCH alpha broken disk"}, result: "0 running"},
		"nor one that was closed before a drain that was stopped": {call: "stop", closed: `"experimental.core.kcp.io/unschedulable":"drain stopped; before: broken disk"`,
			want: []string{"PATCH alpha broken disk"}, result: "0 running"},
		"a drain goes on after a stop": {call: "drain", closed: `"experimental.core.kcp.io/unschedulable":"drain stopped; before: broken disk"`,
			want: []string{"POST dry run", "PATCH alpha broken disk", "POST one beta"}, result: "0 of 1 moved, 1 moving"},
		"migrations in other workspaces are left alone": {call: "drain", closed: `"experimental.core.kcp.io/unschedulable":"drain"`, elsewhere: migrationOf("one", "Migrating"), result: "0 of 1 moved"},
	} {
		t.Run(name, func(t *testing.T) {
			var writes []string
			closed := tc.closed
			server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				content, _ := io.ReadAll(r.Body)
				body := string(content)
				switch {
				case r.Method == http.MethodPatch:
					_, value, _ := strings.Cut(body, `unschedulable":`)
					value = strings.Trim(value, `"}`)
					writes = append(writes, "PATCH "+strings.TrimPrefix(r.URL.Path, shards+"/")+" "+value)
					closed = fmt.Sprintf(`"experimental.core.kcp.io/unschedulable":%q`, value)
					fmt.Fprint(w, shard("alpha", closed))
				case r.Method == http.MethodDelete:
					writes = append(writes, "DELETE "+strings.TrimPrefix(r.URL.Path, migrations+"/"))
					fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Success"}`)
				case r.Method == http.MethodPost && r.URL.Path == migrations:
					text := "POST"
					if r.URL.Query().Get("dryRun") != "" {
						text += " dry run"
					}
					for _, part := range []string{"one", "beta"} {
						if strings.Contains(body, fmt.Sprintf(`:%q`, part)) {
							text += " " + part
						}
					}
					if !strings.Contains(body, `"labels":{"migration.kcp.io/drain":"alpha"}`) {
						text += " without its label"
					}
					writes = append(writes, text)
					if tc.refusal != "" {
						w.WriteHeader(http.StatusForbidden)
						body = tc.refusal
					}
					fmt.Fprint(w, body)
				case r.URL.Path == shards:
					fmt.Fprintf(w, `{"apiVersion":"v1","kind":"List","items":[%s,%s]}`, shard("alpha", closed), shard("beta", ""))
				case r.URL.Path == shards+"/alpha":
					fmt.Fprint(w, shard("alpha", closed))
				case r.URL.Path == migrations:
					fmt.Fprintf(w, `{"apiVersion":"v1","kind":"List","items":[%s]}`, tc.migrations)
				case r.URL.Path == "/debug/logicalclusters/objects":
					fmt.Fprint(w, `{"one":7}`)
				case r.URL.Path == "/clusters/root/apis/apis.kcp.io/v1alpha2/apiexports/migration.kcp.io":
					fmt.Fprint(w, `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"migration.kcp.io"},"status":{"identityHash":"id"}}`)
				case r.URL.Path == "/clusters/*/apis/migration.kcp.io/v1alpha1/logicalclustermigrations:id":
					fmt.Fprintf(w, `{"apiVersion":"v1","kind":"List","items":[%s]}`, strings.ReplaceAll(tc.elsewhere, `"labels"`, `"annotations":{"kcp.io/cluster":"operations"},"labels"`))
				case r.URL.Path == "/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters":
					fmt.Fprint(w, `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster","annotations":{"kcp.io/cluster":"one"}},"spec":{"owner":{"cluster":"root","name":"w"}},"status":{"phase":"Ready"}}]}`)
				case r.URL.Path == "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/w":
					fmt.Fprint(w, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"w"},"spec":{"cluster":"one"}}`)
				default:
					t.Errorf("unexpected request %s %s", r.Method, r.URL.Path)
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
			result := ""
			if tc.call == "drain" {
				progress, err := clients.Drain(t.Context(), root, alpha, time.Now())
				if result = progress.String(); err != nil {
					result = err.Error()
				}
			} else {
				running, err := clients.StopDrain(t.Context(), root, alpha)
				if result = fmt.Sprintf("%d running", running.Moving); err != nil {
					result = err.Error()
				}
			}
			if result != tc.result {
				t.Errorf("got %q, want %q", result, tc.result)
			}
			if !slices.Equal(writes, tc.want) {
				t.Errorf("wrote %q, want %q", writes, tc.want)
			}
		})
	}
}

// migrationOf returns a migration of the drain.
func migrationOf(cluster, phase string) string {
	return fmt.Sprintf(`{"apiVersion":"migration.kcp.io/v1alpha1","kind":"LogicalClusterMigration","metadata":{"name":"m-%s","labels":{"migration.kcp.io/drain":"alpha"}},"spec":{"logicalCluster":%q},"status":{"phase":%q}}`, cluster, cluster, phase)
}
