package isolation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const configMaps = "/api/v1/namespaces/" + namespace + "/configmaps"

// TestSideEffectIsolation covers indirect effects of a request: controllers, counters, webhooks.
func TestSideEffectIsolation(t *testing.T) {
	s := newEnv(t)
	createDefinitions(t, s)
	for name, effect := range map[string]func(*testing.T, *env){
		"discovery and OpenAPI":                                     testDocuments,
		"quota counts only its workspace":                           testQuota,
		"owner references do not cross workspaces":                  testOwners,
		"namespace deletion does not wait for another workspace":    testNamespaces,
		"webhooks and policies apply only in their workspace":       testAdmission,
		"definition deletion keeps definitions of other workspaces": testDefinitions,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			effect(t, s)
		})
	}
}

func testDocuments(t *testing.T, s *env) {
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, document := range []struct{ path, accept string }{
		{"/apis", jsonType}, {"/apis", aggregated}, {"/apis/isolation.example.com", jsonType}, {"/apis/isolation.example.com/v1", jsonType},
		{"/openapi/v2", jsonType}, {"/openapi/v3", jsonType}, {"/openapi/v3/apis/isolation.example.com/v1", jsonType},
	} {
		got := s.a.do(t, http.MethodGet, document.path, "", document.accept)
		s.expectStatus(t, document.path, got, http.StatusOK)
		for _, ofB := range []string{"secretthing", "SecretThing", `"weight"`} {
			if strings.Contains(got.body, ofB) {
				t.Errorf("%s of a contains %s of b", document.path, ofB)
			}
		}
	}
	definitionB := s.b.must(t, http.MethodGet, "/apis/isolation.example.com/v1", "")
	if !strings.Contains(definitionB.body, "secretthings") {
		t.Errorf("the document of b lacks its definition: %s", definitionB.body)
	}
	s.expectStatus(t, "b's resource", s.a.do(t, http.MethodGet, "/apis/isolation.example.com/v1/secretthings", ""), http.StatusNotFound)
}

func configMapJSON(ws *workspaceClient, name string, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"annotations":{%q:%q}%s}}`, name, markerKey, ws.marker, more)
}

func testQuota(t *testing.T, s *env) {
	for _, ws := range []*workspaceClient{s.a, s.b} {
		ws.must(t, http.MethodPost, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"counted"}}`)
	}
	in := "/api/v1/namespaces/counted/"
	for i := range 10 {
		s.b.must(t, http.MethodPost, in+"secrets", fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s%d"}}`, i))
	}
	s.a.must(t, http.MethodPost, in+"resourcequotas", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"few"},"spec":{"hard":{"count/secrets":"2"}}}`)
	shardtesting.Eventually(t, "the quota of a counts no secret", func(ctx context.Context) error {
		status := s.a.do(t, http.MethodGet, in+"resourcequotas/few", "").object(t)["status"]
		if text := fmt.Sprint(status); !strings.Contains(text, "used:map[count/secrets:0]") {
			return fmt.Errorf("status is %s", text)
		}
		return nil
	})
	for i := range 3 {
		want := http.StatusCreated
		if i == 2 {
			want = http.StatusForbidden
		}
		got := s.a.do(t, http.MethodPost, in+"secrets", fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s%d"}}`, i))
		s.expectStatus(t, fmt.Sprint("secret ", i), got, want)
	}
	s.b.must(t, http.MethodPost, in+"secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"one-more"}}`)
}

// testOwners gives each workspace an object whose owner, by name and UID, is in the other. That owner does not exist in
// its own workspace, so the garbage collector deletes the object, and keeps the named object and a dependant of the same name.
func testOwners(t *testing.T, s *env) {
	uids := map[*workspaceClient]string{}
	for _, ws := range []*workspaceClient{s.a, s.b} {
		uids[ws] = ws.must(t, http.MethodPost, configMaps, configMapJSON(ws, "owner", "")).metadata(t, "uid")
	}
	owned := func(ws *workspaceClient, name, uid string) string {
		return configMapJSON(ws, name, fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]`, uid))
	}
	for _, ws := range []*workspaceClient{s.a, s.b} {
		ws.must(t, http.MethodPost, configMaps, owned(ws, "own-child", uids[ws]))
	}
	s.a.must(t, http.MethodPost, configMaps, owned(s.a, "orphan", uids[s.b]))
	s.b.must(t, http.MethodPost, configMaps, owned(s.b, "orphan", uids[s.a]))
	for _, ws := range []*workspaceClient{s.a, s.b} {
		shardtesting.Eventually(t, "the object with an owner in another workspace is deleted", ws.deletedCondition(t, configMaps+"/orphan"))
		ws.must(t, http.MethodGet, configMaps+"/owner", "")
	}
	s.a.must(t, http.MethodDelete, configMaps+"/owner", "")
	shardtesting.Eventually(t, "the child is deleted with its owner", s.a.deletedCondition(t, configMaps+"/own-child"))
	s.b.must(t, http.MethodGet, configMaps+"/own-child", "")
}

func (w *workspaceClient) deletedCondition(t *testing.T, path string) func(context.Context) error {
	return func(context.Context) error {
		if got := w.do(t, http.MethodGet, path, ""); got.status != http.StatusNotFound {
			return fmt.Errorf("GET %s: %d", path, got.status)
		}
		return nil
	}
}

func testNamespaces(t *testing.T, s *env) {
	for _, ws := range []*workspaceClient{s.a, s.b} {
		ws.must(t, http.MethodPost, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ending"}}`)
		finalizers := map[*workspaceClient]string{s.a: "", s.b: `,"finalizers":["example.com/hold"]`}[ws]
		ws.must(t, http.MethodPost, "/api/v1/namespaces/ending/configmaps", configMapJSON(ws, "held", finalizers))
		ws.must(t, http.MethodPost, "/apis/isolation.example.com/v1/namespaces/ending/widgets", `{"apiVersion":"isolation.example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)
	}
	s.b.must(t, http.MethodDelete, "/api/v1/namespaces/ending", "")
	s.a.must(t, http.MethodDelete, "/api/v1/namespaces/ending", "")
	shardtesting.Eventually(t, "the namespace of a is deleted", s.a.deletedCondition(t, "/api/v1/namespaces/ending"))
	s.b.must(t, http.MethodGet, "/api/v1/namespaces/ending", "")
	s.b.must(t, http.MethodPatch, "/api/v1/namespaces/ending/configmaps/held", `{"metadata":{"finalizers":null}}`)
	shardtesting.Eventually(t, "the namespace of b is deleted", s.b.deletedCondition(t, "/api/v1/namespaces/ending"))
}

// testAdmission registers, in a third workspace, a webhook without a server and a policy that denies everything: that
// workspace then cannot write, while a and b can.
func testAdmission(t *testing.T, s *env) {
	c := s.newWorkspaceClient(t, "c")
	c.must(t, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace))
	rule := `[{"apiGroups":[""],"apiVersions":["*"],"resources":[%q],"operations":["*"],"scope":"*"}]`
	c.must(t, http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"broken"},
"webhooks":[{"name":"broken.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"failurePolicy":"Fail","sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":1,"rules":`+rule+`}]}`, "configmaps"))
	c.must(t, http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"no"},
"spec":{"failurePolicy":"Fail","matchConstraints":{"resourceRules":`+rule+`},"validations":[{"expression":"false"}]}}`, "secrets"))
	c.must(t, http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"no"},"spec":{"policyName":"no","validationActions":["Deny"]}}`)
	write := func(ws *workspaceClient, resource, kind string) httpResponse {
		return ws.do(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/"+resource+"?dryRun=All", fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"hooked"}}`, kind))
	}
	for resource, kind := range map[string]string{"configmaps": "ConfigMap", "secrets": "Secret"} {
		shardtesting.Eventually(t, "c cannot write "+resource, func(context.Context) error {
			if got := write(c, resource, kind); got.status < 400 {
				return fmt.Errorf("create succeeds: %d", got.status)
			}
			return nil
		})
		for _, ws := range []*workspaceClient{s.a, s.b} {
			if got := write(ws, resource, kind); got.status != http.StatusCreated {
				t.Errorf("%s cannot write %s: %d %s", ws.name, resource, got.status, got.body)
			}
		}
	}
}

func testDefinitions(t *testing.T, s *env) {
	const name, objects = "temporary.isolation.example.com", "/apis/isolation.example.com/v1/namespaces/" + namespace + "/temporary"
	for _, ws := range []*workspaceClient{s.a, s.b} {
		define(t, ws, name, definitionJSON("temporary", "Temporary", `{"size":{"type":"integer"}}`))
		ws.must(t, http.MethodPost, objects, fmt.Sprintf(`{"apiVersion":"isolation.example.com/v1","kind":"Temporary","metadata":{"name":"x","annotations":{%q:%q}},"spec":{"size":1}}`, markerKey, ws.marker))
	}
	s.a.must(t, http.MethodDelete, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name, "")
	shardtesting.Eventually(t, "the definition is deleted", s.a.deletedCondition(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name))
	s.expectStatus(t, "LIST of a deleted definition", s.a.do(t, http.MethodGet, objects, ""), http.StatusNotFound)
	if keys := s.shard.Keys(t, "/temporary/customresources/"+s.a.cluster+"/"); len(keys) > 0 {
		t.Errorf("keys remain: %v", keys)
	}
	objectB := s.b.must(t, http.MethodGet, objects+"/x", "")
	if !strings.Contains(objectB.body, s.b.marker) {
		t.Errorf("b's object changed: %s", objectB.body)
	}
	define(t, s.a, name, definitionJSON("temporary", "Temporary", `{"size":{"type":"integer"}}`))
	list := s.a.must(t, http.MethodGet, objects, "")
	var found struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(list.body), &found); err != nil || len(found.Items) > 0 {
		t.Errorf("the new definition of a has %d objects: %v %s", len(found.Items), err, list.body)
	}
}
