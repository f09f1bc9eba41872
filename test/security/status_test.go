package security_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testDefinitionStatus writes the status of definitions of a, which normally only the controller of the shard writes.
// Requests for these definitions may fail. The shard must continue to serve b, and must leave no object that its
// workspace cannot see.
func testDefinitionStatus(t *testing.T, s *env) {
	const things = "/apis/status.example.com/v1/namespaces/default/things"
	name := "things.status.example.com"
	names := func(plural, kind string) string {
		return `{"status":{"acceptedNames":{"plural":"` + plural + `","singular":"x","kind":"` + kind + `","listKind":"` + kind + `List","shortNames":["y"]}}}`
	}
	condition := func(kind, status string) string {
		return `{"status":{"conditions":[{"type":"` + kind + `","status":"` + status + `","lastTransitionTime":"2020-01-01T00:00:00Z","reason":"x","message":"x"}]}}`
	}
	for what, patch := range map[string]string{
		"another resource":       names("workspaces", "Thing"),
		"no names":               `{"status":{"acceptedNames":{"plural":"","kind":"","listKind":"","singular":""}}}`,
		"an invalid kind":        names("things", "Th/i\\u0000ng <>"),
		"a built-in kind":        names("things", "ConfigMap"),
		"a long kind":            names("things", strings.Repeat("K", 100000)),
		"not established":        condition("Established", "False"),
		"terminating":            condition("Terminating", "True"),
		"no conditions":          `{"status":{"conditions":[]}}`,
		"names not accepted":     condition("NamesAccepted", "False"),
		"non-structural schema":  condition("NonStructuralSchema", "True"),
		"unknown stored version": `{"status":{"storedVersions":["v9"]}}`,
	} {
		t.Run(what, func(t *testing.T) {
			s.createDefinition(t, definitionJSON("status.example.com", "things", "Thing", "Namespaced", "v1", ""), name)
			s.waitForStatus(t, s.adminA, s.a, things, http.StatusOK)
			s.createObject(t, things, `{"apiVersion":"status.example.com/v1","kind":"Thing","metadata":{"name":"left"}}`)
			s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: definitionsPath + "/" + name + "/status", body: patch, contentType: mergePatchType})
			if what == "not established" || what == "no conditions" { // deleted before the controller corrects the status
				s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: definitionsPath + "/" + name})
			}
			for range 5 {
				for _, r := range []request{
					{path: things}, {path: things + "/left"}, {path: "/apis"}, {path: "/apis/status.example.com/v1"}, {path: "/openapi/v3/apis/status.example.com/v1"}, {path: "/openapi/v2"}, {path: "/apis", header: http.Header{"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}}},
					{method: http.MethodPost, path: things, body: `{"apiVersion":"status.example.com/v1","kind":"Thing","metadata":{"generateName":"more-"}}`}, {path: workspacesPath},
				} {
					if got := s.sendToShard(t, s.adminA, request{method: r.method, path: "/clusters/" + s.a + r.path, body: r.body, header: r.header}); got.status == 0 || strings.Contains(got.body, "goroutine ") || got.status >= 500 && !strings.HasPrefix(r.path, "/apis/status") {
						t.Errorf("%s %s: %d %.300s", r.method, r.path, got.status, got.body)
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
			s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: definitionsPath + "/" + name})
			s.waitForStatus(t, s.adminA, s.a, definitionsPath+"/"+name, http.StatusNotFound)
			shardtesting.Eventually(t, "no object remains in etcd", func(context.Context) error {
				for _, prefix := range []string{"/status.example.com/things/customresources/" + s.a + "/"} {
					if left := s.keys(t, prefix); len(left) > 0 {
						return fmt.Errorf("%d keys, the first is %s", len(left), left[0])
					}
				}
				return nil
			})
		})
	}
	if got := s.do(t, s.adminB, s.b, request{path: confidentialPath}); got.status != http.StatusOK {
		t.Errorf("b: %d %.300s", got.status, got.body)
	}
}
