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
	ofTest          = "isolation.example.com/of-test"
	jsonType        = "application/json"
	mergePatchType  = "application/merge-patch+json"
	applyPatchType  = "application/apply-patch+yaml"
	tableType       = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partialListType = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	protobufType    = "application/vnd.kubernetes.protobuf,application/json"
)

// side is one of the two workspaces, as its administrator sees it.
type side struct {
	name, cluster, marker string
	url                   string
	client                *http.Client
}

// site is two workspaces on one shard of three, which is not the root shard. The provider of their APIs is on a third
// one.
type site struct {
	root, shard, other *shardtesting.Shard
	a, b               *side
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{root: shardtesting.Start(t)}
	s.shard, s.other = shardtesting.StartShard(t, s.root, "alpha"), shardtesting.StartShard(t, s.root, "beta")
	s.a, s.b = s.newSide(t, "a"), s.newSide(t, "b")
	for _, side := range []*side{s.a, s.b} {
		side.must(t, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace))
	}
	return s
}

func (s *site) newSide(t *testing.T, name string) *side {
	t.Helper()
	return s.newSideOn(t, "alpha", s.shard, name)
}

// newSideOn is newSide on another shard.
func (s *site) newSideOn(t *testing.T, shardName string, shard *shardtesting.Shard, name string) *side {
	t.Helper()
	cluster := shardtesting.NewWorkspace(t, s.root.Client(t, s.root.Admin(t)), "root", name, shardtesting.OnShard(shardName)).Spec.Cluster
	config := shardtesting.At(shard.Admin(t), cluster)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &side{name: name, cluster: cluster, marker: "marker-of-" + name + "-" + cluster, url: config.Host, client: client}
}

// answer is a response.
type answer struct {
	status int
	body   string
}

func (a answer) object(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(a.body), &object); err != nil {
		t.Fatalf("%v: %.300s", err, a.body)
	}
	return object
}

// metadata returns a string field of the object's metadata.
func (a answer) metadata(t *testing.T, field string) string {
	t.Helper()
	metadata, _ := a.object(t)["metadata"].(map[string]any)
	text, _ := metadata[field].(string)
	return text
}

func (s *side) do(t *testing.T, method, path, body string, accept ...string) answer {
	t.Helper()
	response := s.open(t, t.Context(), method, path, body, accept...)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s in %s: %v", method, path, s.name, err)
	}
	return answer{response.StatusCode, string(raw)}
}

func (s *side) open(t *testing.T, ctx context.Context, method, path, body string, accept ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
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
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatalf("%s %s in %s: %v", method, path, s.name, err)
	}
	return response
}

func (s *side) must(t *testing.T, method, path, body string) answer {
	t.Helper()
	got := s.do(t, method, path, body)
	if got.status >= 300 {
		t.Fatalf("%s %s in %s: %d %s", method, path, s.name, got.status, got.body)
	}
	return got
}
