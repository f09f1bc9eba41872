package isolation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// verbTests are the probes by verb of discovery. Deletions come last: they remove the objects that the others need.
var verbTests = []struct {
	verb  string
	probe func(*testing.T, *env, resource)
}{
	{"get", testGet},
	{"list", testList},
	{"watch", testWatch},
	{"create", testCreate},
	{"update", testUpdate},
	{"patch", testPatch},
	{"delete", testDelete},
	{"deletecollection", testDeleteCollection},
}

const (
	nameInBoth = "both"   // exists in both workspaces
	onlyA      = "only-a" // exists in a
	onlyB      = "only-b" // exists in b
)

func TestResourceVerbIsolation(t *testing.T) {
	s := newEnv(t)
	createDefinitions(t, s)
	createBindings(t, s)
	resources := discoverResources(t, s.shard.Admin(t), s.a)
	if len(resources) < 20 {
		t.Fatalf("discovery lists only %d resources", len(resources))
	}
	covered := map[string]bool{}
	for _, r := range resources {
		covered[r.key()] = true
		t.Run(r.key()+"/"+r.Version, func(t *testing.T) {
			for _, verb := range r.Verbs {
				if !slices.ContainsFunc(verbTests, func(v struct {
					verb  string
					probe func(*testing.T, *env, resource)
				}) bool {
					return v.verb == verb
				}) {
					t.Errorf("verb %q of %s: the test has no probe for it", verb, r.key())
				}
			}
			if !r.supportsVerb("list") || !r.supportsVerb("get") {
				testReview(t, s, r)
				return
			}
			t.Parallel()
			r.createObjects(t, s)
			before := r.state(t, s)
			for _, v := range verbTests {
				if r.supportsVerb(v.verb) {
					t.Run(v.verb, func(t *testing.T) { v.probe(t, s, r) })
				}
			}
			for _, sub := range r.subresources {
				t.Run(strings.TrimPrefix(sub.Name, r.Name+"/"), func(t *testing.T) { testSubresource(t, s, r, sub) })
			}
			if after := r.state(t, s); !slices.Equal(before, after) {
				t.Errorf("b changed:\nbefore %v\nafter  %v", before, after)
			}
		})
	}
	for _, kind := range []string{"sharedthings.shared.example.com", "widgets.isolation.example.com", "workspaces.tenancy.kcp.io", "secrets"} {
		if !covered[kind] {
			t.Errorf("discovery does not list %s", kind)
		}
	}
}

// createObjects creates the objects that the probes distinguish.
func (r resource) createObjects(t *testing.T, s *env) {
	t.Helper()
	if fixedNames[r.key()] != "" {
		return
	}
	for _, ws := range []*workspaceClient{s.a, s.b} {
		for _, name := range []string{nameInBoth, "only-" + ws.name} {
			ws.must(t, http.MethodPost, r.collectionPath(), r.sample(t, ws, r.objectName(name)))
		}
		if r.key() == "workspaces.tenancy.kcp.io" { // workspaces change until they are Ready
			for _, name := range []string{nameInBoth, "only-" + ws.name} {
				s.shard.WaitReady(t, ws.cluster, name)
			}
		}
	}
}

// objectName returns the name of the object for a short name of the test.
func (r resource) objectName(suffix string) string {
	switch {
	case fixedNames[r.key()] != "":
		return fixedNames[r.key()]
	case r.key() == "customresourcedefinitions.apiextensions.k8s.io":
		return strings.ReplaceAll(suffix, "-", "") + "s.pairs.example.com"
	case r.key() == "apiresourceschemas.apis.kcp.io":
		return suffix + ".schemas.pairs.example.com"
	case r.key() == "apiexportendpointslices.apis.kcp.io":
		return suffix + "-slice" // exports create objects under their own names
	case r.key() == "events.events.k8s.io":
		return suffix + "-new" // the same objects as those of the legacy group
	case r.Group == "apis.kcp.io" && r.Version == "v1alpha1" && r.Name != "apiconversions":
		return suffix + "-old" // the same objects as those of the preferred version
	default:
		return suffix
	}
}

// labelValue is the value of testLabel of the objects of this resource. The same objects may be served as another
// resource as well, whose tests run at the same time.
func (r resource) labelValue() string { return strings.ReplaceAll(r.version(), "/", "_") }

func (r resource) labelSelector() string { return testLabel + "%3D" + r.labelValue() }

// state describes the objects of b: identity, marker, and whether it is being deleted.
func (r resource) state(t *testing.T, s *env) []string {
	t.Helper()
	list := s.b.must(t, http.MethodGet, r.allNamespacesPath()+"?labelSelector="+r.labelSelector(), "").object(t)
	var lines []string
	for _, item := range list["items"].([]any) {
		metadata := item.(map[string]any)["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		lines = append(lines, fmt.Sprint(metadata["name"], metadata["uid"], metadata["deletionTimestamp"], annotations[markerKey], annotations["kcp.io/cluster"] == s.b.cluster))
	}
	slices.Sort(lines)
	return lines
}

// servedCondition returns a condition: the path is served.
func (w *workspaceClient) servedCondition(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
		if err != nil {
			return err
		}
		response, err := w.client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", path, response.Status)
		}
		return nil
	}
}

// expectNoLeak fails the test if a response in a reveals b.
func (e *env) expectNoLeak(t *testing.T, what string, got httpResponse) {
	t.Helper()
	if strings.Contains(got.body, e.b.marker) || strings.Contains(got.body, e.b.cluster) {
		t.Errorf("%s in a reveals b: %d %.500s", what, got.status, got.body)
	}
	if got.status >= http.StatusInternalServerError {
		t.Errorf("%s in a: %d %.500s", what, got.status, got.body)
	}
}

// expectStatus is expectNoLeak for a response with an expected status.
func (e *env) expectStatus(t *testing.T, what string, got httpResponse, status ...int) {
	t.Helper()
	e.expectNoLeak(t, what, got)
	if !slices.Contains(status, got.status) {
		t.Errorf("%s in a: got %d, want %v: %.300s", what, got.status, status, got.body)
	}
}

// createDefinitions creates an identical definition in both workspaces, and one name with two different definitions.
func createDefinitions(t *testing.T, s *env) {
	t.Helper()
	for _, ws := range []*workspaceClient{s.a, s.b} {
		define(t, ws, "widgets.isolation.example.com", definitionJSON("widgets", "Widget", `{"size":{"type":"integer","default":3}}`))
	}
	define(t, s.a, "gadgets.isolation.example.com", definitionJSON("gadgets", "Gadget", `{"colour":{"type":"string"}}`))
	define(t, s.b, "gadgets.isolation.example.com", definitionJSON("gadgets", "Gadget", `{"weight":{"type":"integer"}}`))
	define(t, s.b, "secretthings.isolation.example.com", definitionJSON("secretthings", "SecretThing", `{"weight":{"type":"integer"}}`))
}

// createBindings has a and b bind one export, and a third workspace another export of a resource of the same name. The
// objects of the third carry the marker of b: they must not be visible in a either.
func createBindings(t *testing.T, s *env) {
	t.Helper()
	shared := schema.GroupResource{Group: "shared.example.com", Resource: "sharedthings"}
	for name, consumers := range map[string][]*workspaceClient{"provider": {s.a, s.b}, "other-provider": {s.newWorkspaceClient(t, "c")}} {
		provider := s.newWorkspaceClientOn(t, "beta", s.providerShard, name)
		s.providerShard.NewExport(t, provider.cluster, "shared", shared, "SharedThing")
		for _, consumer := range consumers {
			s.shard.Bind(t, consumer.cluster, provider.cluster, "shared")
			shardtesting.Eventually(t, "the bound resource is served", consumer.servedCondition("/apis/shared.example.com/v1/sharedthings"))
		}
		if third := consumers[0]; name == "other-provider" {
			third.must(t, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace))
			for _, object := range []string{nameInBoth, onlyB} {
				third.must(t, http.MethodPost, "/apis/shared.example.com/v1/namespaces/"+namespace+"/sharedthings", fmt.Sprintf(
					`{"apiVersion":"shared.example.com/v1","kind":"SharedThing","metadata":{"name":%q,"labels":{%q:"shared.example.com_v1"},"annotations":{%q:%q}}}`, object, testLabel, markerKey, s.b.marker))
			}
		}
	}
}

func definitionJSON(plural, kind, properties string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.isolation.example.com"},
"spec":{"group":"isolation.example.com","scope":"Namespaced","names":{"plural":%[1]q,"kind":%[2]q,"categories":["all"]},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.size"}},
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":%[3]s},"status":{"type":"object","properties":{"size":{"type":"integer"}}}}}}}]}}`, plural, kind, properties)
}
