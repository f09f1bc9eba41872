package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// Paths of resources, below a logical cluster.
const (
	workspaces     = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
	types          = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
	clusters       = "/apis/core.kcp.io/v1alpha1/logicalclusters"
	ownClusterPath = clusters + "/cluster"
	shards         = "/apis/core.kcp.io/v1alpha1/shards"
	definitions    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	namespaces     = "/api/v1/namespaces"
	configMaps     = namespaces + "/default/configmaps"
	secrets        = namespaces + "/default/secrets"
	dryRun         = "?dryRun=All"
)

// env is an installation with two workspaces and an inactive one.
type env struct {
	*installation.Installation
	// proxyClients are clients of the front proxy by user, direct are clients of the same users for the shards that
	// have the requested logical clusters.
	proxyClients, directClients map[string]*http.Client
	// names replaces placeholders in paths and bodies by values of the running installation: {a} is the logical cluster
	// of root:a.
	names        *strings.Replacer
	replacements []string
}

// admissionConfiguration makes a quota a precondition of creating secrets.
const admissionConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: KCPKubeResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources: [{resource: secrets, matchContains: [count/secrets]}]
`

// newEnv runs the installation. alice is administrator of root:a, bob of root:b and of the inactive root:idle, mallory
// is a user without permissions, unauthenticated has no credentials, invalid has an invalid token.
func newEnv(t *testing.T) *env {
	t.Helper()
	admission := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(admission, []byte(admissionConfiguration), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &env{proxyClients: map[string]*http.Client{}, directClients: map[string]*http.Client{}, names: strings.NewReplacer()}
	s.Installation = installation.Start(t, bin, "--admission-control-config-file="+admission, "--feature-gates=CacheAPIs=true", "--enable-admission-plugins=apis.kcp.io/ReservedMetadata")
	for name, groups := range map[string][]string{
		"masters": {"system:masters"}, "admin": {"system:kcp:admin"}, "manager": {"system:kcp:logical-cluster-admin"},
		"alice": nil, "bob": nil, "mallory": nil,
	} {
		s.addUser(t, name, s.User(t, "", name, groups...))
	}
	config := rest.AnonymousClientConfig(s.User(t, "", "anonymous"))
	s.addUser(t, "unauthenticated", config)
	config.BearerToken = "wrong"
	s.addUser(t, "invalid", config)

	// Provider and consumer are on different shards. Tests request virtual workspaces at the root shard, as the
	// front proxy does, so the consumer is there.
	s.NewWorkspace(t, "a", "alice", shardtesting.OnShard(installation.Alpha))
	s.NewWorkspace(t, "b", "bob", shardtesting.OnShard(installation.Root))
	s.NewWorkspace(t, "idle", "bob", shardtesting.OnShard(installation.Beta))
	s.addPlaceholders("{a}", s.workspaceCluster(t, "a"), "{b}", s.workspaceCluster(t, "b"), "{idle}", s.workspaceCluster(t, "idle"))
	s.must(t, request{user: "bob", method: http.MethodPatch, path: "/clusters/{idle}" + ownClusterPath, body: `{"metadata":{"annotations":{"core.kcp.io/inactive":"true"}}}`})
	s.waitForStatus(t, request{user: "bob", path: "/clusters/{idle}" + namespaces}, http.StatusForbidden)
	return s
}

// addUser adds the clients of a user, for the front proxy and for shards.
func (e *env) addUser(t *testing.T, name string, config *rest.Config) {
	t.Helper()
	e.proxyClients[name] = e.client(t, config)
	e.directClients[name] = e.client(t, e.Direct(t, config))
}

// addPlaceholders adds pairs of a placeholder and its value.
func (e *env) addPlaceholders(pairs ...string) {
	e.replacements = append(e.replacements, pairs...)
	e.names = strings.NewReplacer(e.replacements...)
}

func (e *env) client(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 30 * time.Second
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client
}

// workspaceCluster returns the logical cluster of a workspace below root.
func (e *env) workspaceCluster(t *testing.T, name string) string {
	t.Helper()
	var workspace struct{ Spec struct{ Cluster string } }
	e.must(t, request{user: "admin", path: "/clusters/root" + workspaces + "/" + name}).decode(t, &workspace)
	return workspace.Spec.Cluster
}

// request is a request of a user to the shard, or through the proxy.
type request struct {
	user, method, path, body string
	proxy                    bool
}

func (r request) String() string {
	return fmt.Sprintf("%s %s as %s, proxy: %v", r.method, r.path, r.user, r.proxy)
}

type httpResponse struct {
	status int
	header http.Header
	body   string
}

func (h httpResponse) decode(t *testing.T, object any) {
	t.Helper()
	if err := json.Unmarshal([]byte(h.body), object); err != nil {
		t.Fatalf("%d %.300s: %v", h.status, h.body, err)
	}
}

func (e *env) do(t *testing.T, r request) httpResponse {
	t.Helper()
	base, client := e.Shard, e.directClients[r.user]
	if r.proxy {
		base, client = e.URL, e.proxyClients[r.user]
	}
	if r.method == "" {
		r.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(t.Context(), r.method, base+e.names.Replace(r.path), strings.NewReader(e.names.Replace(r.body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	if req.Header.Set("Content-Type", "application/json"); r.method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", r, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", r, err)
	}
	return httpResponse{response.StatusCode, response.Header, string(body)}
}

func (e *env) must(t *testing.T, r request) httpResponse {
	t.Helper()
	got := e.do(t, r)
	if got.status >= http.StatusMultipleChoices {
		t.Fatalf("%s: %d %s", r, got.status, got.body)
	}
	return got
}

func (e *env) waitForStatus(t *testing.T, r request, status int) httpResponse {
	t.Helper()
	var got httpResponse
	shardtesting.Eventually(t, r.String(), func(context.Context) error {
		if got = e.do(t, r); got.status != status {
			return fmt.Errorf("%d %.300s, want %d", got.status, got.body, status)
		}
		return nil
	})
	return got
}

// waitForRow waits until the shard's response to a row is as the row expects.
func (e *env) waitForRow(t *testing.T, r row) {
	t.Helper()
	method, path, found := strings.Cut(r.request, " ")
	if !found {
		method, path = http.MethodGet, r.request
	}
	shardtesting.Eventually(t, r.section+" "+r.description, func(context.Context) error {
		got := e.do(t, request{user: r.user, method: method, path: path, body: r.body})
		if contains := e.names.Replace(r.contains); got.status != r.shard || !strings.Contains(got.body, contains) {
			return fmt.Errorf("%d, want %d and %q: %.2000s", got.status, r.shard, contains, got.body)
		}
		return nil
	})
}
