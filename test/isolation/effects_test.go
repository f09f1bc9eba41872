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

// TestEffectsStayInTheirWorkspace covers indirect effects of a request: controllers, counters, webhooks.
func TestEffectsStayInTheirWorkspace(t *testing.T) {
	s := newSite(t)
	defineKinds(t, s)
	for name, effect := range map[string]func(*testing.T, *site){
		"discovery and OpenAPI tell nothing of another's definitions":         documents,
		"a quota counts its own workspace alone":                              quota,
		"an owner of another workspace is no owner":                           owners,
		"a namespace goes though another's of the same name is held":          namespaces,
		"a webhook that fails, and a policy that denies, harm only their own": hooks,
		"a definition goes with its objects, another's of the same name stay": definitions,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			effect(t, s)
		})
	}
}

func documents(t *testing.T, s *site) {
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, document := range []struct{ path, accept string }{
		{"/apis", jsonType}, {"/apis", aggregated}, {"/apis/isolation.example.com", jsonType}, {"/apis/isolation.example.com/v1", jsonType},
		{"/openapi/v2", jsonType}, {"/openapi/v3", jsonType}, {"/openapi/v3/apis/isolation.example.com/v1", jsonType},
	} {
		got := s.a.do(t, http.MethodGet, document.path, "", document.accept)
		s.wants(t, document.path, got, http.StatusOK)
		for _, ofB := range []string{"secretthing", "SecretThing", `"weight"`} {
			if strings.Contains(got.body, ofB) {
				t.Errorf("%s of a tells of %s, which is b's", document.path, ofB)
			}
		}
	}
	theirs := s.b.must(t, http.MethodGet, "/apis/isolation.example.com/v1", "")
	if !strings.Contains(theirs.body, "secretthings") {
		t.Errorf("b does not see its own definition: %s", theirs.body)
	}
	s.wants(t, "b's resource", s.a.do(t, http.MethodGet, "/apis/isolation.example.com/v1/secretthings", ""), http.StatusNotFound)
}

func configMap(of *side, name string, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"annotations":{%q:%q}%s}}`, name, markerKey, of.marker, more)
}

func quota(t *testing.T, s *site) {
	for _, of := range []*side{s.a, s.b} {
		of.must(t, http.MethodPost, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"counted"}}`)
	}
	in := "/api/v1/namespaces/counted/"
	for i := range 10 {
		s.b.must(t, http.MethodPost, in+"secrets", fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s%d"}}`, i))
	}
	s.a.must(t, http.MethodPost, in+"resourcequotas", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"few"},"spec":{"hard":{"count/secrets":"2"}}}`)
	shardtesting.Eventually(t, "the quota of a counts nothing", func(ctx context.Context) error {
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
		s.wants(t, fmt.Sprint("secret ", i), got, want)
	}
	s.b.must(t, http.MethodPost, in+"secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"one-more"}}`)
}

// owners gives each workspace an object whose owner, by name and UID, is in the other. That owner does not exist in its
// own workspace, so the object is collected; the named object stays, and so does a dependant of the same name.
func owners(t *testing.T, s *site) {
	uids := map[*side]string{}
	for _, of := range []*side{s.a, s.b} {
		uids[of] = of.must(t, http.MethodPost, configMaps, configMap(of, "owner", "")).metadata(t, "uid")
	}
	owned := func(of *side, name, uid string) string {
		return configMap(of, name, fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]`, uid))
	}
	for _, of := range []*side{s.a, s.b} {
		of.must(t, http.MethodPost, configMaps, owned(of, "own-child", uids[of]))
	}
	s.a.must(t, http.MethodPost, configMaps, owned(s.a, "orphan", uids[s.b]))
	s.b.must(t, http.MethodPost, configMaps, owned(s.b, "orphan", uids[s.a]))
	for _, of := range []*side{s.a, s.b} {
		shardtesting.Eventually(t, "the object whose owner is elsewhere goes", of.gone(t, configMaps+"/orphan"))
		of.must(t, http.MethodGet, configMaps+"/owner", "")
	}
	s.a.must(t, http.MethodDelete, configMaps+"/owner", "")
	shardtesting.Eventually(t, "the child goes with its owner", s.a.gone(t, configMaps+"/own-child"))
	s.b.must(t, http.MethodGet, configMaps+"/own-child", "")
}

func (s *side) gone(t *testing.T, path string) func(context.Context) error {
	return func(context.Context) error {
		if got := s.do(t, http.MethodGet, path, ""); got.status != http.StatusNotFound {
			return fmt.Errorf("GET %s: %d", path, got.status)
		}
		return nil
	}
}

func namespaces(t *testing.T, s *site) {
	for _, of := range []*side{s.a, s.b} {
		of.must(t, http.MethodPost, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ending"}}`)
		finalizers := map[*side]string{s.a: "", s.b: `,"finalizers":["example.com/hold"]`}[of]
		of.must(t, http.MethodPost, "/api/v1/namespaces/ending/configmaps", configMap(of, "held", finalizers))
		of.must(t, http.MethodPost, "/apis/isolation.example.com/v1/namespaces/ending/widgets", `{"apiVersion":"isolation.example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)
	}
	s.b.must(t, http.MethodDelete, "/api/v1/namespaces/ending", "")
	s.a.must(t, http.MethodDelete, "/api/v1/namespaces/ending", "")
	shardtesting.Eventually(t, "the namespace of a goes", s.a.gone(t, "/api/v1/namespaces/ending"))
	s.b.must(t, http.MethodGet, "/api/v1/namespaces/ending", "")
	s.b.must(t, http.MethodPatch, "/api/v1/namespaces/ending/configmaps/held", `{"metadata":{"finalizers":null}}`)
	shardtesting.Eventually(t, "the namespace of b goes", s.b.gone(t, "/api/v1/namespaces/ending"))
}

// hooks registers, in a third workspace, a webhook without a server and a policy that denies everything: that workspace
// then cannot write, while a and b can.
func hooks(t *testing.T, s *site) {
	c := s.newSide(t, "c")
	c.must(t, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace))
	rule := `[{"apiGroups":[""],"apiVersions":["*"],"resources":[%q],"operations":["*"],"scope":"*"}]`
	c.must(t, http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"broken"},
"webhooks":[{"name":"broken.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"failurePolicy":"Fail","sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":1,"rules":`+rule+`}]}`, "configmaps"))
	c.must(t, http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"no"},
"spec":{"failurePolicy":"Fail","matchConstraints":{"resourceRules":`+rule+`},"validations":[{"expression":"false"}]}}`, "secrets"))
	c.must(t, http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"no"},"spec":{"policyName":"no","validationActions":["Deny"]}}`)
	write := func(of *side, resource, kind string) answer {
		return of.do(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/"+resource+"?dryRun=All", fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"hooked"}}`, kind))
	}
	for resource, kind := range map[string]string{"configmaps": "ConfigMap", "secrets": "Secret"} {
		shardtesting.Eventually(t, "c cannot write "+resource, func(context.Context) error {
			if got := write(c, resource, kind); got.status < 400 {
				return fmt.Errorf("it can: %d", got.status)
			}
			return nil
		})
		for _, of := range []*side{s.a, s.b} {
			if got := write(of, resource, kind); got.status != http.StatusCreated {
				t.Errorf("%s cannot write %s: %d %s", of.name, resource, got.status, got.body)
			}
		}
	}
}

func definitions(t *testing.T, s *site) {
	const name, objects = "doomed.isolation.example.com", "/apis/isolation.example.com/v1/namespaces/" + namespace + "/doomed"
	for _, of := range []*side{s.a, s.b} {
		define(t, of, name, definition("doomed", "Doomed", `{"size":{"type":"integer"}}`))
		of.must(t, http.MethodPost, objects, fmt.Sprintf(`{"apiVersion":"isolation.example.com/v1","kind":"Doomed","metadata":{"name":"x","annotations":{%q:%q}},"spec":{"size":1}}`, markerKey, of.marker))
	}
	s.a.must(t, http.MethodDelete, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name, "")
	shardtesting.Eventually(t, "the definition goes", s.a.gone(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name))
	s.wants(t, "LIST of what is defined no more", s.a.do(t, http.MethodGet, objects, ""), http.StatusNotFound)
	if keys := s.shard.Keys(t, "/doomed/customresources/"+s.a.cluster+"/"); len(keys) > 0 {
		t.Errorf("keys are left: %v", keys)
	}
	theirs := s.b.must(t, http.MethodGet, objects+"/x", "")
	if !strings.Contains(theirs.body, s.b.marker) {
		t.Errorf("b's object changed: %s", theirs.body)
	}
	define(t, s.a, name, definition("doomed", "Doomed", `{"size":{"type":"integer"}}`))
	list := s.a.must(t, http.MethodGet, objects, "")
	var found struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(list.body), &found); err != nil || len(found.Items) > 0 {
		t.Errorf("the new definition of a begins with %d objects: %v %s", len(found.Items), err, list.body)
	}
}
