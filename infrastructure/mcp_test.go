package infrastructure_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/mcp"
	"github.com/atoll-dev/atoll/infrastructure/web"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const anyRedis = "redis"

// webEnv is an installation with the web server of the provider.
type webEnv struct {
	*instancesEnv
	url string
}

func newWebEnv(t *testing.T) *webEnv {
	e := &webEnv{instancesEnv: newInstancesEnv(t)}
	limits := mcp.DefaultLimits()
	limits.Poll, limits.Waits = 20*time.Millisecond, 1
	protocol, err := mcp.NewHandler(mcp.Config{FrontProxy: e.shard.Admin(t), Group: group, Export: "root:provider:" + export, Limits: limits, Log: klog.Background()})
	if err != nil {
		t.Fatal(err)
	}
	server, err := web.Listen("127.0.0.1:0", "", "", web.Config{FrontProxy: e.shard.Admin(t), MCP: protocol, Limits: web.DefaultLimits(), Log: klog.Background()})
	if err != nil {
		t.Fatal(err)
	}
	e.url = "http://" + server.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the web server ended: %v", err)
		}
	})
	e.grant(t, e.tenant, "alice")
	e.grant(t, e.second, "bob")
	e.grant(t, e.tenant, "reader", rbacv1.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}},
		rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"templates"}, Verbs: []string{"get", "list"}})
	e.answerClaims(t, e.tenant, apisv1alpha2.ClaimAccepted)
	return e
}

// headers is a transport that adds headers to each request.
type headers struct{ set map[string]string }

func (h headers) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, value := range h.set {
		req.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(req)
}

// mcpClient is an AI client.
type mcpClient struct {
	*sdk.ClientSession
	mu       sync.Mutex
	progress []string
}

// reported returns the reported progress.
func (c *mcpClient) reported() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.progress)
}

// connect connects an AI client with the token of a user, and more headers as pairs of name and value.
func (e *webEnv) connect(t *testing.T, token string, more ...string) *mcpClient {
	t.Helper()
	set := map[string]string{"Authorization": "Bearer " + token}
	for i := 0; i < len(more); i += 2 {
		set[more[i]] = more[i+1]
	}
	c := &mcpClient{}
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.progress = append(c.progress, req.Params.Message)
		},
	})
	var err error
	c.ClientSession, err = client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: e.url + "/mcp", HTTPClient: &http.Client{Transport: headers{set}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// tool calls a tool and returns its text and result. It fails if they contain anything that tenants must not see.
func (c *mcpClient) tool(t *testing.T, name string, arguments map[string]any) (text string, result map[string]any, failed bool) {
	t.Helper()
	params := &sdk.CallToolParams{Name: "infrastructure__" + name, Arguments: arguments}
	params.SetProgressToken(name)
	res, err := c.CallTool(t.Context(), params)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, content := range res.Content {
		text += content.(*sdk.TextContent).Text + "\n"
	}
	for _, word := range []string{"manifest", "configmap", "confidential", "backend", "127.0.0.1", "redis://"} {
		if strings.Contains(strings.ToLower(text), word) {
			t.Errorf("%s: %q is in %s", name, word, text)
		}
	}
	if res.IsError {
		return text, nil, true
	}
	result, _ = res.StructuredContent.(map[string]any)
	structured, err := json.Marshal(result)
	if err != nil || !strings.Contains(text, string(structured)[1:10]) {
		t.Errorf("%s: the text %q does not have the result %s, %v", name, text, structured, err)
	}
	return text, result, false
}

// must calls a tool that must succeed.
func (c *mcpClient) must(t *testing.T, name string, arguments map[string]any) map[string]any {
	t.Helper()
	text, result, failed := c.tool(t, name, arguments)
	if failed {
		t.Fatalf("%s: %s", name, text)
	}
	return result
}

// refused calls a tool that must fail with an error that contains the texts.
func (c *mcpClient) refused(t *testing.T, name string, arguments map[string]any, texts ...string) string {
	t.Helper()
	text, result, failed := c.tool(t, name, arguments)
	if !failed {
		t.Fatalf("%s succeeds: %v", name, result)
	}
	for _, want := range append(texts, "What to do next: ") {
		if !strings.Contains(text, want) {
			t.Errorf("%s: %q is missing in %s", name, want, text)
		}
	}
	return text
}

func TestMCP(t *testing.T) {
	e := newWebEnv(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"protocol", e.testProtocol},
		{"tools", e.testTools},
		{"the catalogue", e.testMCPTemplates},
		{"values that are refused", e.testRefusedValues},
		{"an instance from order to deletion", e.testLifecycle},
		{"identities", e.testIdentities},
		{"hostile arguments", e.testHostileArguments},
		{"lists have pages, and the same entries for everybody", e.testLists},
		{"waiting ends with the client", e.testWaiting},
		{"the API of workspaces has the caller's identity", e.testPassThrough},
		{"the installation in the host cluster", e.testInstallation},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// raw sends an unmodified request to the MCP server.
func (e *webEnv) raw(ctx context.Context, t *testing.T, method, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, e.url+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// testProtocol shows which requests the server refuses before any tool runs.
func (e *webEnv) testProtocol(t *testing.T) {
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for name, test := range map[string]struct {
		method, body string
		header       []string
		code         int
	}{
		"no token":       {http.MethodPost, list, nil, http.StatusUnauthorized},
		"a password":     {http.MethodPost, list, []string{"Authorization", "Basic YTpi"}, http.StatusUnauthorized},
		"a cookie":       {http.MethodPost, list, []string{"Cookie", "token=alice-token"}, http.StatusUnauthorized},
		"a token":        {http.MethodPost, list, []string{"Authorization", "Bearer a"}, http.StatusOK},
		"another origin": {http.MethodPost, list, []string{"Authorization", "Bearer a", "Origin", "https://evil.example.org"}, http.StatusForbidden},
		"a batch":        {http.MethodPost, "\n [" + list + "]", []string{"Authorization", "Bearer a"}, http.StatusBadRequest},
		"too much":       {http.MethodPost, strings.Repeat(" ", 2<<20) + list, []string{"Authorization", "Bearer a"}, http.StatusRequestEntityTooLarge},
		"a stream":       {http.MethodGet, "", []string{"Authorization", "Bearer a"}, http.StatusMethodNotAllowed},
		"a session":      {http.MethodDelete, "", []string{"Authorization", "Bearer a", "Mcp-Session-Id", "1"}, http.StatusMethodNotAllowed},
	} {
		res := e.raw(t.Context(), t, test.method, test.body, test.header...)
		if res.StatusCode != test.code || (res.StatusCode == http.StatusUnauthorized) != (res.Header.Get("WWW-Authenticate") != "") || res.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: got %s, %v", name, res.Status, res.Header)
		}
	}
	alice := e.connect(t, tokenOf("alice"))
	if _, err := alice.ListResources(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "method not found") {
		t.Errorf("a method that has no tools: %v", err)
	}
}

func (e *webEnv) testTools(t *testing.T) {
	list, err := e.connect(t, tokenOf("nobody")).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, strings.TrimPrefix(tool.Name, "infrastructure__"))
		schema, _ := tool.InputSchema.(map[string]any)
		required, _ := schema["required"].([]any)
		if !slices.Contains(required, any("workspace")) || schema["additionalProperties"] == nil {
			t.Errorf("%s: the schema of arguments is %v", tool.Name, schema)
		}
		for name, property := range schema["properties"].(map[string]any) {
			if property.(map[string]any)["description"] == nil {
				t.Errorf("%s: argument %s has no description", tool.Name, name)
			}
		}
		if tool.OutputSchema == nil || tool.Description == "" || tool.Annotations == nil {
			t.Errorf("%s: %+v", tool.Name, tool)
		}
	}
	slices.Sort(names)
	if want := []string{"delete_instance", "describe_template", "get_instance", "list_instances", "list_templates", "provision", "update_instance"}; !slices.Equal(names, want) {
		t.Errorf("tools %v, want %v", names, want)
	}
}

func (e *webEnv) testMCPTemplates(t *testing.T) {
	e.change(t, "redis", func(template *infrastructurev1alpha1.Template) {
		template.Spec.Description = "A cache."
		template.Spec.SampleValues = &runtime.RawExtension{Raw: []byte(`{"name":"a","size":"large"}`)}
		template.Spec.Agent = &infrastructurev1alpha1.AgentGuidance{Usage: "For sessions.", Prerequisites: []string{"A budget."}, Outputs: []string{"endpoint"}}
	})
	reader := e.connect(t, tokenOf("reader"))
	shardtesting.Eventually(t, "the template to be described", func(context.Context) error {
		text, result, failed := reader.tool(t, "describe_template", map[string]any{"workspace": "root:tenant", "template": "redis"})
		if failed || result["usage"] != "For sessions." {
			return errors.New(text)
		}
		schema, _ := json.Marshal(result["valuesSchema"])
		if got := fmt.Sprint(result["kind"], result["description"], result["sampleValues"], result["prerequisites"], result["outputs"]); got != "RedisA cache.map[name:a size:large] [A budget.] [endpoint]" || !strings.Contains(string(schema), `"enum":["small","large"]`) {
			t.Errorf("got %s, %s", got, schema)
		}
		return nil
	})
	list := reader.must(t, "list_templates", map[string]any{"workspace": e.tenant})
	if got := fmt.Sprint(list["templates"]); !strings.Contains(got, "name:redis") || list["continue"] != nil {
		t.Errorf("got %v", list)
	}
	reader.refused(t, "describe_template", map[string]any{"workspace": "root:tenant", "template": "absent"}, `Failed to describe template "absent"`, "not found", "infrastructure__list_templates")
	unbound := e.shard.NewWorkspace(t, "root", "empty").Spec.Cluster
	e.grant(t, unbound, "reader", rbacv1.PolicyRule{NonResourceURLs: []string{"/", "/apis/*"}, Verbs: []string{"access", "get"}},
		rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: []string{"*"}})
	for _, name := range []string{"list_templates", "list_instances"} {
		reader.refused(t, name, map[string]any{"workspace": "root:empty"}, "has no infrastructure catalogue", "kubectl kcp bind apiexport root:provider:"+export)
	}
}

// testRefusedValues shows that refused values create nothing, and that the error names the fields.
func (e *webEnv) testRefusedValues(t *testing.T) {
	alice := e.connect(t, tokenOf("alice"))
	for name, test := range map[string]struct {
		values map[string]any
		want   []string
	}{
		"an enum":          {map[string]any{"name": "a", "size": "huge"}, []string{"- values.size: ", `"small", "large"`}},
		"a missing one":    {map[string]any{"size": "small"}, []string{"- values.name: ", "Required"}},
		"an unknown field": {map[string]any{"name": "a", "colour": "red"}, []string{`unknown field "spec.colour"`}},
		"a type":           {map[string]any{"name": 1}, []string{"- values.name: "}},
		"several":          {map[string]any{"name": 1, "size": "huge"}, []string{"- values.name: ", "- values.size: "}},
	} {
		t.Run(name, func(t *testing.T) {
			alice.refused(t, "provision", map[string]any{"workspace": "root:tenant", "template": anyRedis, "name": "refused", "values": test.values},
				append(test.want, `Failed to provision "refused" from template "redis" in workspace "root:tenant"`, "infrastructure__describe_template")...)
		})
	}
	result := alice.must(t, "provision", map[string]any{"workspace": "root:tenant", "template": anyRedis, "name": "refused", "values": map[string]any{"name": "a"}, "dryRun": true})
	if result["dryRun"] != true || fmt.Sprint(result["values"]) != "map[name:a size:small]" {
		t.Errorf("a dry run returns %v", result)
	}
	if _, err := e.of(e.tenant).inTenant(t, "redis").Get(t.Context(), "refused", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an instance was created: %v", err)
	}
}
