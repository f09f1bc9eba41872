package infrastructure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backendtest"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/mcp"
	"github.com/atoll-dev/atoll/infrastructure/web"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

const (
	webGroup  = "infrastructure.example.org"
	webExport = "web.infrastructure.example.org"
)

// site is the web server of a provider before the front proxy of an installation.
type site struct {
	url   string
	group string
}

// tenant is a workspace with a service account, whose token is what clients of the web server have.
type tenant struct{ path, cluster, token string }

// newSite runs a provider with a Template, and its web server.
func newSite(t *testing.T, provider backendtest.Workspace) *site {
	t.Helper()
	config := provider.Config
	c, err := client.New(config, client.Options{Scheme: infrastructure.NewScheme(webGroup)})
	if err != nil {
		t.Fatal(err)
	}
	backends := &backend.Registry{}
	if err := backends.Register(stub.NewServing(stub.Config{Name: "stub", Group: webGroup, Export: webExport, Runtime: stub.NewRuntime(), Log: logr.Discard()})); err != nil {
		t.Fatal(err)
	}
	front := rest.CopyConfig(config)
	front.Host, _, _ = strings.Cut(config.Host, "/clusters/")
	protocol, err := mcp.NewHandler(mcp.Config{FrontProxy: front, Group: webGroup, Export: "root:" + provider.Name + ":" + webExport, Limits: mcp.DefaultLimits(), Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	server, err := web.Listen("127.0.0.1:0", "", "", web.Config{FrontProxy: front, MCP: protocol, Limits: web.DefaultLimits(), Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- infrastructure.Run(ctx, infrastructure.Config{
			Workspace: config, Catalogue: catalogue.Options{Group: webGroup, Export: webExport, Binders: "system:authenticated"}, Backends: backends,
			Instances: &instance.View{Workspace: config, Client: c, Export: webExport}, MetricsAddress: "0", HealthAddress: "0", Web: server, Log: logr.Discard(),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the provider ended: %v", err)
		}
	})
	template := &infrastructurev1alpha1.Template{
		ObjectMeta: metav1.ObjectMeta{Name: "sample"},
		Spec: infrastructurev1alpha1.TemplateSpec{
			DisplayName: "Sample", Version: "0.1.0", Backend: "stub",
			InstanceCRD: infrastructurev1alpha1.InstanceCRD{Group: webGroup, Version: "v1alpha1", Kind: "Sample", Resource: "samples"},
			Schema:      runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"size":{"type":"string","enum":["small","large"],"default":"small"}}}`)},
		},
	}
	shardtesting.Eventually(t, "templates to be served", func(ctx context.Context) error { return c.Create(ctx, template.DeepCopy()) })
	shardtesting.Eventually(t, "the template to be ready", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(template), template); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(template.Status.Conditions, infrastructurev1alpha1.ConditionReady) {
			return fmt.Errorf("conditions %+v", template.Status.Conditions)
		}
		return nil
	})
	return &site{url: "http://" + server.Addr().String(), group: webGroup}
}

// newTenant creates a tenant on a shard, which has bound the export, with a service account that may use it.
func newTenant(t *testing.T, provider backendtest.Workspace, shard string) tenant {
	t.Helper()
	workspace := shared.installation.NewTenantOn(t, shard)
	clients, err := kubernetes.NewForConfig(workspace.Config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(workspace.Config, client.Options{Scheme: infrastructure.NewScheme(webGroup)})
	if err != nil {
		t.Fatal(err)
	}
	bind(t, c, "root:"+provider.Name)
	account, err := clients.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{webGroup}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "agent"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agent"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "agent"}},
		},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	token, err := clients.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return tenant{path: "root:" + workspace.Name, cluster: account.Annotations["kcp.io/cluster"], token: token.Status.Token}
}

// bind binds the export in the workspace of a client.
func bind(t *testing.T, c client.Client, provider string) {
	t.Helper()
	binding := &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: webExport},
		Spec:       apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: provider, Name: webExport}}},
	}
	if err := c.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the export to be bound", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(binding), binding); err != nil {
			return err
		}
		if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("conditions %+v", binding.Status.Conditions)
		}
		return nil
	})
}

// TestWeb shows D1: portal and MCP server act on all shards with the token of their users, through the front proxy.
func TestWeb(t *testing.T) {
	t.Parallel()
	shared.Start(t)
	provider := shared.installation.NewProvider(t)
	s := newSite(t, provider)
	alpha, beta := newTenant(t, provider, installation.Alpha), newTenant(t, provider, installation.Beta)
	events := s.watch(t, alpha)
	for _, own := range []tenant{alpha, beta} {
		agent := s.connect(t, own.token)
		shardtesting.Eventually(t, "the catalogue", func(ctx context.Context) error {
			_, err := agent.call(ctx, "describe_template", map[string]any{"workspace": own.path, "template": "sample"})
			return err
		})
		created, err := agent.call(t.Context(), "provision", map[string]any{"workspace": own.path, "template": "sample", "name": "mine", "values": map[string]any{}, "waitSeconds": 60})
		if err != nil || created["ready"] != true {
			t.Fatalf("provisioning in %s: %v, %v", own.path, created, err)
		}
		for _, name := range []string{own.path, own.cluster} {
			if got, err := agent.call(t.Context(), "list_instances", map[string]any{"workspace": name}); err != nil || got["count"] != 1.0 {
				t.Errorf("instances in %s: %v, %v", name, got, err)
			}
		}
	}
	if line, err := events.ReadString('\n'); err != nil || !strings.Contains(line, `"mine"`) {
		t.Errorf("the first event of the watch: %q, %v", line, err)
	}
	agent := s.connect(t, alpha.token)
	_, there := agent.call(t.Context(), "list_instances", map[string]any{"workspace": beta.path})
	_, absent := agent.call(t.Context(), "list_instances", map[string]any{"workspace": "root:absent"})
	if there == nil || absent == nil || strings.ReplaceAll(there.Error(), beta.path, "root:absent") != absent.Error() {
		t.Errorf("a workspace of others can be told from one that does not exist:\n%v\n%v", there, absent)
	}
	s.testIdentity(t, alpha)
}

// testIdentity shows that the front proxy authenticates a request with the token, independent of other headers.
func (s *site) testIdentity(t *testing.T, own tenant) {
	t.Helper()
	res := s.send(t, own.token, http.MethodPost, "/clusters/"+own.path+"/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	review := &authenticationv1.SelfSubjectReview{}
	if err := json.NewDecoder(res.Body).Decode(review); err != nil || review.Status.UserInfo.Username != "system:serviceaccount:default:agent" {
		t.Errorf("got %s, %+v, %v", res.Status, review.Status, err)
	}
	for path, want := range map[string]int{
		"/clusters/" + own.path + "/../../services/x": http.StatusBadRequest, "/clusters/*/apis": http.StatusNotFound, "/services/x": http.StatusNotFound, "/metrics": http.StatusNotFound,
		"/clusters/root/api/v1/secrets": http.StatusForbidden,
	} {
		if res := s.send(t, own.token, http.MethodGet, path, ""); res.StatusCode != want {
			t.Errorf("%s: got %s, want %d", path, res.Status, want)
		}
	}
}

// watch starts a watch of instances, when they are served.
func (s *site) watch(t *testing.T, own tenant) *bufio.Reader {
	t.Helper()
	var events *bufio.Reader
	shardtesting.Eventually(t, "a watch", func(context.Context) error {
		res := s.send(t, own.token, http.MethodGet, "/clusters/"+own.path+"/apis/"+s.group+"/v1alpha1/samples?watch=true", "")
		if res.StatusCode != http.StatusOK {
			text, err := io.ReadAll(res.Body)
			return fmt.Errorf("%s: %s, %w", res.Status, text, err)
		}
		events = bufio.NewReader(res.Body)
		return nil
	})
	return events
}

// send sends a request with a token, and with headers that claim another identity.
func (s *site) send(t *testing.T, token, method, path, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Impersonate-User": "admin", "Impersonate-Group": "system:masters",
		"X-Remote-User": "admin", "X-Remote-Group": "system:masters", "X-Kcp-Remote-User": "admin", "Cookie": "a=b",
	} {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// agent is an AI client.
type agent struct{ *sdk.ClientSession }

// withToken sends a token with each request.
type withToken string

// RoundTrip implements http.RoundTripper.
func (token withToken) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(req)
}

func (s *site) connect(t *testing.T, token string) agent {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.StreamableClientTransport{Endpoint: s.url + "/mcp", HTTPClient: &http.Client{Transport: withToken(token)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return agent{session}
}

// call calls a tool and returns its result.
func (a agent) call(ctx context.Context, name string, arguments map[string]any) (map[string]any, error) {
	res, err := a.CallTool(ctx, &sdk.CallToolParams{Name: "infrastructure__" + name, Arguments: arguments})
	if err != nil {
		return nil, err
	}
	if res.IsError {
		return nil, errors.New(res.Content[0].(*sdk.TextContent).Text)
	}
	return res.StructuredContent.(map[string]any), nil
}
