package security_test

import (
	"fmt"
	"net/http"
	"testing"
)

// testObjectLimit attempts to exceed the object limit of workspace a with delete requests that delete nothing.
func testObjectLimit(t *testing.T, s *env) {
	limit := func(value string) httpResponse {
		return s.do(t, s.masters, s.a, request{method: http.MethodPatch, path: ownClusterPath, contentType: mergePatchType, body: `{"metadata":{"annotations":{"core.kcp.io/max-total-bytes":"1000000000","core.kcp.io/max-total-objects":` + value + `}}}`})
	}
	configMap := func(name, more string) request {
		return request{method: http.MethodPost, path: configMapsPath, body: fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s}}`, name, more)}
	}
	finalized := configMapsPath + "/finalized"
	s.do(t, s.adminA, s.a, configMap("finalized", `,"finalizers":["example.com/hold"]`))
	if got := limit(`"1"`); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	defer func() {
		limit("null")
		s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: finalized, contentType: mergePatchType, body: `{"metadata":{"finalizers":null}}`})
		s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: finalized})
	}()
	for i := range 100 {
		for _, query := range []string{"", "?propagationPolicy=Orphan", "?propagationPolicy=Foreground", "?dryRun=All", "?gracePeriodSeconds=0", "?preconditions.uid=x"} {
			s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: finalized + query})
		}
		if i%10 == 0 {
			s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: configMapsPath + "?fieldSelector=metadata.name=finalized"})
			s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: finalized, body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"x"}}`})
		}
	}
	for i := range 5 {
		if got := s.do(t, s.adminA, s.a, configMap(fmt.Sprintf("beyond-%d", i), "")); got.status != http.StatusForbidden {
			t.Errorf("an object beyond the limit: %d %.300s", got.status, got.body)
			s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: fmt.Sprintf("%s/beyond-%d", configMapsPath, i)})
		}
	}
	for _, caller := range []*testUser{s.adminA, s.serviceAccount} {
		for _, annotation := range []string{"core.kcp.io/max-total-objects", "core.kcp.io/max-total-bytes"} {
			for _, value := range []string{`"0"`, `"1000000"`, "null", `"x"`} {
				got := s.do(t, caller, s.a, request{method: http.MethodPatch, path: ownClusterPath, contentType: mergePatchType, body: fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, annotation, value)})
				if got.status < 300 {
					t.Errorf("%s sets %s to %s: %d %.300s", caller.name, annotation, value, got.status, got.body)
				}
			}
		}
	}
}
