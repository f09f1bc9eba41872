package security_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// hanging is a webhook that takes every call and answers none, until the test ends.
func hanging(t *testing.T) (url, bundle string) {
	t.Helper()
	released := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-released:
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(released)
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// hangingConversions makes objects of a that only a webhook can convert which never answers, and deletes more
// definitions at once than the shard has hands for. Those of b must go as ever.
func hangingConversions(t *testing.T, s *site) {
	url, bundle := hanging(t)
	const definitions, objects = 12, 20
	for i := range definitions {
		group := fmt.Sprintf("hang-%d.example.com", i)
		s.define(t, definition(group, "hangs", "Hang", "Namespaced", "v1", ""), "hangs."+group)
		for j := range objects {
			s.make(t, "/apis/"+group+"/v1/namespaces/default/hangs", fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Hang","metadata":{"name":"h-%d"}}`, group, j))
		}
		const schema = `"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`
		patch := `{"spec":{"versions":[{"name":"v2","served":true,"storage":true,` + schema + `},{"name":"v1","served":true,"storage":false,` + schema + `}],
			"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"` + url + `","caBundle":"` + bundle + `"}}}}}`
		if got := s.do(t, s.admin, s.a, request{method: http.MethodPatch, path: definitionsPath + "/hangs." + group, body: patch, contentType: mergePatchType}); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	for i := range definitions {
		s.do(t, s.admin, s.a, request{method: http.MethodDelete, path: fmt.Sprintf("%s/hangs.hang-%d.example.com", definitionsPath, i)})
	}
	time.Sleep(time.Second) // the controller takes them all up
	began := time.Now()
	body := definition("quick.example.com", "quicks", "Quick", "Namespaced", "v1", "")
	if got := s.do(t, s.masters, s.b, request{method: http.MethodPost, path: definitionsPath, body: body}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.eventually(t, s.masters, s.b, "/apis/quick.example.com/v1/quicks", http.StatusOK)
	s.do(t, s.masters, s.b, request{method: http.MethodPost, path: "/apis/quick.example.com/v1/namespaces/default/quicks", body: `{"apiVersion":"quick.example.com/v1","kind":"Quick","metadata":{"name":"q"}}`})
	s.do(t, s.masters, s.b, request{method: http.MethodDelete, path: definitionsPath + "/quicks.quick.example.com"})
	s.eventually(t, s.masters, s.b, definitionsPath+"/quicks.quick.example.com", http.StatusNotFound)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a definition of b took %s to come and go", took)
	}
	// Without the webhook, what is left goes.
	for i := range definitions {
		name := fmt.Sprintf("hangs.hang-%d.example.com", i)
		if got := s.do(t, s.admin, s.a, request{method: http.MethodPatch, path: definitionsPath + "/" + name, body: `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`, contentType: mergePatchType}); got.status != http.StatusOK && got.status != http.StatusNotFound && !strings.Contains(got.body, "conflict") {
			t.Errorf("%d %.300s", got.status, got.body)
		}
	}
	for i := range definitions {
		s.eventually(t, s.admin, s.a, fmt.Sprintf("%s/hangs.hang-%d.example.com", definitionsPath, i), http.StatusNotFound)
	}
}
