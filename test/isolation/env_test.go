package isolation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	namespace       = "same"
	markerKey       = "isolation.example.com/marker"
	testLabel       = "isolation.example.com/of-test"
	jsonType        = "application/json"
	mergePatchType  = "application/merge-patch+json"
	applyPatchType  = "application/apply-patch+yaml"
	tableType       = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partialListType = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	protobufType    = "application/vnd.kubernetes.protobuf,application/json"
)

// workspaceClient is one of the two workspaces, as its administrator sees it.
type workspaceClient struct {
	name, cluster, marker string
	url                   string
	client                *http.Client
}

// env is two workspaces on one shard of three, which is not the root shard. The provider of their APIs is on a third
// one.
type env struct {
	root, shard, providerShard *shardtesting.Shard
	a, b                       *workspaceClient
}

func newEnv(t *testing.T) *env {
	t.Helper()
	s := &env{root: shardtesting.Start(t)}
	s.shard, s.providerShard = shardtesting.StartShard(t, s.root, "alpha"), shardtesting.StartShard(t, s.root, "beta")
	s.a, s.b = s.newWorkspaceClient(t, "a"), s.newWorkspaceClient(t, "b")
	for _, workspace := range []*workspaceClient{s.a, s.b} {
		workspace.must(t, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace))
	}
	return s
}

func (e *env) newWorkspaceClient(t *testing.T, name string) *workspaceClient {
	t.Helper()
	return e.newWorkspaceClientOn(t, "alpha", e.shard, name)
}

// newWorkspaceClientOn is newWorkspaceClient on another shard.
func (e *env) newWorkspaceClientOn(t *testing.T, shardName string, shard *shardtesting.Shard, name string) *workspaceClient {
	t.Helper()
	cluster := shardtesting.NewWorkspace(t, e.root.Client(t, e.root.Admin(t)), "root", name, shardtesting.OnShard(shardName)).Spec.Cluster
	config := shardtesting.At(shard.Admin(t), cluster)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &workspaceClient{name: name, cluster: cluster, marker: "marker-of-" + name + "-" + cluster, url: config.Host, client: client}
}

// httpResponse is a response.
type httpResponse struct {
	status int
	body   string
}

func (h httpResponse) object(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(h.body), &object); err != nil {
		t.Fatalf("%v: %.300s", err, h.body)
	}
	return object
}

// metadata returns a string field of the object's metadata.
func (h httpResponse) metadata(t *testing.T, field string) string {
	t.Helper()
	metadata, _ := h.object(t)["metadata"].(map[string]any)
	text, _ := metadata[field].(string)
	return text
}

func (w *workspaceClient) do(t *testing.T, method, path, body string, accept ...string) httpResponse {
	t.Helper()
	response := w.open(t, t.Context(), method, path, body, accept...)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s in %s: %v", method, path, w.name, err)
	}
	return httpResponse{response.StatusCode, string(raw)}
}

func (w *workspaceClient) open(t *testing.T, ctx context.Context, method, path, body string, accept ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", jsonType)
	if len(accept) > 0 {
		request.Header.Set("Accept", accept[0])
	}
	switch {
	case method == http.MethodPatch && strings.Contains(path, "fieldManager="):
		request.Header.Set("Content-Type", applyPatchType)
	case method == http.MethodPatch:
		request.Header.Set("Content-Type", mergePatchType)
	default:
		request.Header.Set("Content-Type", jsonType)
	}
	response, err := w.client.Do(request)
	if err != nil {
		t.Fatalf("%s %s in %s: %v", method, path, w.name, err)
	}
	return response
}

func (w *workspaceClient) must(t *testing.T, method, path, body string) httpResponse {
	t.Helper()
	got := w.do(t, method, path, body)
	if got.status >= 300 {
		t.Fatalf("%s %s in %s: %d %s", method, path, w.name, got.status, got.body)
	}
	return got
}
