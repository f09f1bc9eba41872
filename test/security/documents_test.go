package security_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// testDocuments requests discovery and OpenAPI documents in workspace a that describe definitions of workspace b, with
// every header that identifies a document.
func testDocuments(t *testing.T, s *env) {
	of := func(field string) string {
		return strings.Replace(definitionJSON("documents.example.com", "papers", "Paper", "Namespaced", "v1", ""),
			`"type":"object","x-kubernetes-preserve-unknown-fields":true`, `"type":"object","description":"about `+field+`","properties":{"`+field+`":{"type":"string"}}`, 1)
	}
	secret := strings.ReplaceAll(of("hiddenfield"), "documents.example.com", "secret.example.com")
	for _, body := range []string{of("hiddenfield"), secret} {
		if got := s.do(t, s.masters, s.b, request{method: http.MethodPost, path: definitionsPath, body: body}); got.status != http.StatusCreated {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	defer func() {
		for _, name := range []string{"papers.documents.example.com", "papers.secret.example.com"} {
			s.do(t, s.masters, s.b, request{method: http.MethodDelete, path: definitionsPath + "/" + name})
			s.waitForStatus(t, s.masters, s.b, definitionsPath+"/"+name, http.StatusNotFound)
		}
	}()
	s.waitForStatus(t, s.adminB, s.b, "/apis/documents.example.com/v1/papers", http.StatusOK)
	s.waitForStatus(t, s.adminB, s.b, "/apis/secret.example.com/v1/papers", http.StatusOK)
	s.createDefinition(t, of("lunch"), "papers.documents.example.com")
	s.waitForStatus(t, s.adminA, s.a, "/apis/documents.example.com/v1/papers", http.StatusOK)

	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	must(t, json.Unmarshal([]byte(s.do(t, s.adminB, s.b, request{path: "/openapi/v3"}).body), &index))
	paths := []string{"/openapi/v2", "/openapi/v3", "/apis", "/apis/documents.example.com", "/apis/documents.example.com/v1", "/apis/secret.example.com", "/apis/secret.example.com/v1", "/openapi/v3/apis/secret.example.com/v1"}
	for _, group := range index.Paths {
		paths = append(paths, group.URL[strings.Index(group.URL, "/openapi"):])
	}
	accepts := []string{jsonType, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
	for _, path := range paths {
		for _, accept := range accepts {
			documentB := s.do(t, s.adminB, s.b, request{path: path, header: http.Header{"Accept": {accept}}})
			for _, header := range []http.Header{
				{"Accept": {accept}}, {"Accept": {accept}, "If-None-Match": {documentB.header.Get("Etag")}}, {"Accept": {accept}, "If-None-Match": {"*"}}, {"Accept": {accept}, "If-Modified-Since": {documentB.header.Get("Last-Modified")}},
				{"Accept": {accept}, "Accept-Encoding": {"gzip"}},
			} {
				got := s.do(t, s.adminA, s.a, request{path: path, header: header})
				if strings.Contains(got.body, "hiddenfield") || strings.Contains(got.body, "secret.example.com/") || strings.Contains(got.body, "io.secret.example") {
					t.Errorf("%s with %v: %d %.300s", path, header, got.status, got.body)
				}
				about := strings.Contains(path, "documents.example.com") || path == "/openapi/v2" || strings.HasPrefix(path, "/openapi/v3/apis/documents")
				if got.status == http.StatusNotModified && about && strings.HasPrefix(path, "/openapi") && header.Get("If-None-Match") == documentB.header.Get("Etag") && documentB.status == http.StatusOK {
					t.Errorf("%s with %v: Not Modified for the document of b", path, header)
				}
				if got.status >= 500 {
					t.Errorf("%s with %v: %d %.300s", path, header, got.status, got.body)
				}
			}
		}
	}
	if got := s.do(t, s.adminA, s.a, request{path: "/openapi/v3/apis/documents.example.com/v1"}); !strings.Contains(got.body, "lunch") {
		t.Errorf("the document lacks the definition of a: %d %.300s", got.status, got.body)
	}
	s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: definitionsPath + "/papers.documents.example.com"})
	s.waitForStatus(t, s.adminA, s.a, definitionsPath+"/papers.documents.example.com", http.StatusNotFound)
	for _, path := range []string{"/openapi/v3/apis/documents.example.com/v1", "/apis/documents.example.com/v1", "/apis/documents.example.com/v1/papers"} {
		if got := s.do(t, s.adminA, s.a, request{path: path}); got.status != http.StatusNotFound {
			t.Errorf("after the deletion of the definition of a, %s: %d %.300s", path, got.status, got.body)
		}
	}
}
