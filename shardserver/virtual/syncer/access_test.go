package syncer_test

import (
	"net/http"
	"strings"

	"github.com/atoll-dev/atoll/internal/syncerview"
)

func testWrites(s *env) {
	first, ignored := s.viewPath(s.accepting, gadgetsPath+"/first"), s.viewPath(s.accepting, gadgetsPath+"/ignored")
	for name, body := range map[string]string{
		"the finalizer":           `{"metadata":{"finalizers":["syncagent.kcp.io/cleanup"]}}`,
		"an annotation":           `{"metadata":{"annotations":{"related-resources.syncagent.kcp.io/secret.0":"{}"}}}`,
		"with the type":           `{"apiVersion":"service.io/v1beta1","kind":"Gadget","metadata":{"annotations":{"related-resources.syncagent.kcp.io/secret.1":"{}"}}}`,
		"the annotation is gone":  `{"metadata":{"annotations":{"related-resources.syncagent.kcp.io/secret.1":null}}}`,
		"the status, without one": `{"status":{"phase":"Ignored"}}`,
	} {
		if got := s.send("agent", http.MethodPatch, first, body); got.status != http.StatusOK || !strings.Contains(got.body, `"kind":"Gadget"`) {
			s.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	s.expect(http.StatusOK, "agent", http.MethodPatch, first, `[{"op":"add","path":"/metadata/annotations/related-resources.syncagent.kcp.io~1x.0","value":"y"}]`, "Content-Type", "application/json-patch+json")
	for name, body := range map[string]string{
		"the spec":                  `{"spec":{"size":9}}`,
		"another field":             `{"data":{"a":"b"}}`,
		"a label":                   `{"metadata":{"labels":{"a":"b"}}}`,
		"a label of the filter":     `{"metadata":{"labels":{"sync":"no"}}}`,
		"another finalizer":         `{"metadata":{"finalizers":["syncagent.kcp.io/cleanup","example.io/hold"]}}`,
		"an annotation of others":   `{"metadata":{"annotations":{"a":"b"}}}`,
		"the agent's domain":        `{"metadata":{"annotations":{"syncagent.kcp.io/agent-name":"b"}}}`,
		"an owner":                  `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"x","uid":"y"}]}}`,
		"the finalizer and a label": `{"metadata":{"finalizers":[],"labels":{"a":"b"}}}`,
	} {
		if got := s.send("agent", http.MethodPatch, first, body); name == "another field" && got.status == http.StatusOK {
			if strings.Contains(got.body, `"data"`) { // fields that the schema does not have are pruned before
				s.Errorf("%s: %s", name, got.body)
			}
		} else if got.status != http.StatusForbidden || !strings.Contains(got.body, "the syncer's view allows changes of the status") {
			s.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	var current object
	body := s.expect(http.StatusOK, "agent", http.MethodGet, first, "")
	s.decode(body, &current)
	if current.Status != nil || strings.Join(current.Finalizers, " ") != "syncagent.kcp.io/cleanup" || current.Annotations["related-resources.syncagent.kcp.io/secret.0"] != "{}" {
		s.Errorf("the object is %s", body)
	}
	// Updates, with the whole object.
	s.expect(http.StatusForbidden, "agent", http.MethodPut, first, strings.Replace(body, `"size":5`, `"size":6`, 1))
	s.expect(http.StatusOK, "agent", http.MethodPut, first, strings.Replace(body, `"related-resources.syncagent.kcp.io/secret.0":"{}"`, `"related-resources.syncagent.kcp.io/secret.0":"[]"`, 1))
	s.expect(http.StatusConflict, "agent", http.MethodPut, first, strings.Replace(body, `"related-resources.syncagent.kcp.io/secret.0":"{}"`, `"related-resources.syncagent.kcp.io/secret.0":""`, 1))
	s.expect(http.StatusOK, "agent", http.MethodPatch, first+"/status", `{"status":{"phase":"Fine"},"spec":{"size":8},"metadata":{"labels":{"a":"b"}}}`)
	body = s.expect(http.StatusOK, "agent", http.MethodGet, first+"/status", "")
	if !strings.Contains(body, `"phase":"Fine"`) || !strings.Contains(body, `"size":5`) || strings.Contains(body, `"a":"b"`) || !strings.Contains(body, `"kind":"Gadget"`) {
		s.Errorf("with the status it is %s", body)
	}
	s.expect(http.StatusOK, "agent", http.MethodPut, first+"/status", strings.Replace(body, "Fine", "Better", 1))
	s.expect(http.StatusNotFound, "agent", http.MethodGet, first+"/scale", "")
	// Objects are neither created nor deleted.
	gadget := `{"apiVersion":"service.io/v1beta1","kind":"Gadget","metadata":{"name":"made","labels":{"sync":"yes"}},"spec":{}}`
	s.expect(http.StatusMethodNotAllowed, "agent", http.MethodPost, s.viewPath(s.accepting, gadgetsPath), gadget)
	s.expect(http.StatusMethodNotAllowed, "agent", http.MethodDelete, first, "")
	s.expect(http.StatusMethodNotAllowed, "agent", http.MethodDelete, s.viewPath(s.accepting, gadgetsPath), "")
	s.expect(http.StatusNotFound, "agent", http.MethodPut, s.viewPath(s.accepting, gadgetsPath+"/made"), gadget)
	s.expect(http.StatusNotFound, "agent", http.MethodPatch, s.viewPath(s.accepting, gadgetsPath+"/made"), `{}`)
	for _, media := range []string{"application/apply-patch+yaml", "application/apply-patch+cbor", "application/strategic-merge-patch+json", "application/json", "text/plain"} {
		s.expect(http.StatusUnsupportedMediaType, "agent", http.MethodPatch, s.viewPath(s.accepting, gadgetsPath+"/made?fieldManager=x"), gadget, "Content-Type", media)
	}
	s.expect(http.StatusUnsupportedMediaType, "agent", http.MethodPut, first, "a: b", "Content-Type", "application/yaml")
	s.expect(http.StatusBadRequest, "agent", http.MethodPatch, s.viewPath("*", allGadgetsPath+"/first"), `{}`)
	// Objects that the filter does not match cannot be reached, unless they have the agent's finalizer.
	s.expect(http.StatusNotFound, "agent", http.MethodPatch, ignored, `{"metadata":{"finalizers":["syncagent.kcp.io/cleanup"]}}`)
	s.expect(http.StatusNotFound, "agent", http.MethodPatch, ignored+"/status", `{"status":{"phase":"Fine"}}`)
	// The watch cache may have the object of before a write, so the same is repeated.
	for range 30 {
		s.patch(s.accepting, widgetsPath+"/ignored", `{"metadata":{"finalizers":["syncagent.kcp.io/cleanup","example.io/hold"]}}`)
		s.expect(http.StatusOK, "agent", http.MethodGet, ignored, "")
		s.expect(http.StatusForbidden, "agent", http.MethodPatch, ignored, `{"metadata":{"finalizers":[]}}`)
		s.expect(http.StatusOK, "agent", http.MethodPatch, ignored, `{"metadata":{"finalizers":["example.io/hold"]}}`)
		s.expect(http.StatusNotFound, "agent", http.MethodGet, ignored, "")
		s.expect(http.StatusNotFound, "agent", http.MethodPatch, ignored, `{"metadata":{"finalizers":["syncagent.kcp.io/cleanup","example.io/hold"]}}`)
	}
	s.patch(s.accepting, widgetsPath+"/ignored", `{"metadata":{"finalizers":[]}}`)
}

func testRelated(s *env) {
	for _, path := range []string{secretsPath, profilesPath} {
		body := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"made"}}`
		if path == profilesPath {
			body = `{"apiVersion":"example.io/v1","kind":"Profile","metadata":{"name":"made"},"spec":{"a":"b"}}`
		}
		one := s.viewPath(s.accepting, path)
		s.eventually(http.StatusCreated, "agent", http.MethodPost, one, body)
		s.expect(http.StatusOK, "agent", http.MethodPatch, one+"/made", `{"metadata":{"labels":{"a":"b"}}}`)
		s.expect(http.StatusOK, "agent", http.MethodGet, one+"/made", "")
		s.expect(http.StatusOK, "agent", http.MethodDelete, one+"/made", "")
	}
	s.expect(http.StatusOK, "agent", http.MethodGet, s.viewPath(s.accepting, "/api/v1/namespaces/default"), "")
	s.expect(http.StatusForbidden, "agent", http.MethodGet, s.viewPath(s.rejecting, "/api/v1/namespaces/default"), "")
	s.expect(http.StatusForbidden, "agent", http.MethodPost, s.viewPath(s.rejecting, secretsPath), `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"made"}}`)
}

func testRefusals(s *env) {
	for _, path := range []string{
		"/apis/example.io/v1/widgets", widgetsPath, widgetsPath + "/first", "/apis/example.io/v1/maps", "/apis/example.io/v1/others", "/apis/service.io/v1/gadgets", "/apis/service.io/v1beta1/others",
		"/apis/apis.kcp.io/v1alpha2/apibindings", "/api/v1/events", "/api/v1/pods", "/apis/rbac.authorization.k8s.io/v1/clusterroles", gadgetsPath + "/first/status/more",
		"/apis/service.io/v1beta1/watch/gadgets", "/apis/service.io/v1beta1/gadgets:abc", "/api/v1/maps",
	} {
		for _, user := range []string{"agent", "masters"} {
			for _, cluster := range []string{"*", s.accepting} {
				got := s.send(user, http.MethodGet, s.viewPath(cluster, path), "")
				if got.status != http.StatusNotFound && got.status != http.StatusForbidden && !(cluster == "*" && got.status == http.StatusBadRequest) || strings.Contains(got.body, `"size"`) {
					s.Errorf("%s of %s as %s: %d %.300s", path, cluster, user, got.status, got.body)
				}
			}
		}
	}
	for _, user := range []string{"stranger", "another-agent", "reader"} {
		for _, cluster := range []string{"*", s.accepting, s.unbound, "nosuchcluster"} {
			for _, path := range []string{allGadgetsPath, allMapsPath, "/apis", "/openapi/v3", "/api/v1/secrets", allGadgetsPath + "?watch=1", gadgetsPath + "/first"} {
				if body := s.expect(http.StatusForbidden, user, http.MethodGet, s.viewPath(cluster, path), ""); !strings.Contains(body, "access denied") {
					s.Errorf("the response contains the reason: %s", body)
				}
			}
		}
	}
	for _, cluster := range []string{s.unbound, s.provider, "nosuchcluster", "root", "system:admin"} {
		for _, path := range []string{allGadgetsPath, allMapsPath, "/api/v1/secrets", gadgetsPath + "/first"} {
			if body := s.expect(http.StatusForbidden, "agent", http.MethodGet, s.viewPath(cluster, path), ""); !strings.Contains(body, "access denied") {
				s.Errorf("the response contains the reason: %s", body)
			}
		}
	}
	for _, id := range []string{s.provider + ":else", s.provider, "things", s.provider + ":", ":things", "root:provider:things", s.provider + "/things", s.unbound + ":things", "*:things", s.provider + ":things:more"} {
		s.expect(http.StatusForbidden, "agent", http.MethodGet, "/services/syncer/"+id+"/clusters/*"+allGadgetsPath, "")
		if got := s.send("masters", http.MethodGet, "/services/syncer/"+id+"/clusters/*"+allGadgetsPath, ""); got.status != http.StatusNotFound {
			s.Errorf("%s as masters: %d %.300s", id, got.status, got.body)
		}
	}
	// The permission is for this view only.
	s.expect(http.StatusForbidden, "agent", http.MethodGet, "/services/apiexport/"+s.provider+"/things/clusters/*/apis/example.io/v1/widgets", "")
	s.expect(http.StatusForbidden, "agent", http.MethodGet, s.viewPath(s.accepting, gadgetsPath+"/first"), "", "Impersonate-User", "somebody")
}

func testDescription(s *env) {
	path := "/clusters/" + s.provider + "/apis/apis.kcp.io/v1alpha2/apiexports/things"
	resp := s.open(s.Context(), "alpha", "masters", http.MethodPatch, path, `{"metadata":{"annotations":{"`+syncerview.Annotation+`":"{\"related\":[{\"resource\":\"a/b\"}]}"}}}`)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusForbidden {
		s.Errorf("an invalid description: %d", resp.StatusCode)
	}
}
