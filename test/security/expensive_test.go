package security_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// testExpensiveDefinitions creates definitions in a that are expensive to compile, and requests everything derived from
// them. That may slow down a, and must not slow down b.
func testExpensiveDefinitions(t *testing.T, s *env) {
	wide := func(n int, one string) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, `"f%d":%s,`, i, one)
		}
		return `{"type":"object","properties":{` + strings.TrimSuffix(all.String(), ",") + `}}`
	}
	deep := func(n int) string {
		return strings.Repeat(`{"type":"object","properties":{"a":`, n) + `{"type":"string"}` + strings.Repeat(`}}`, n)
	}
	for name, schema := range map[string]string{
		"wide":    wide(20000, `{"type":"string","description":"d"}`),
		"deepest": deep(4900),
		"rules":   wide(400, `{"type":"string","maxLength":5,"x-kubernetes-validations":[{"rule":"self.startsWith('a') \u0026\u0026 self.matches('^(a|b)*c{1,5}$')","messageExpression":"'no ' + self"}]}`),
		"costly":  wide(3, `{"type":"array","items":{"type":"array","items":{"type":"string"}},"x-kubernetes-validations":[{"rule":"self.all(x, self.all(y, self.all(z, x.all(w, y.exists(v, v.matches(w))))))"}]}`),
		"regexps": wide(2000, `{"type":"string","pattern":"^((a{1,30}){1,30}|b*)*$","maxLength":100}`),
	} {
		t.Run(name, func(t *testing.T) {
			group := name + ".example.com"
			body := strings.Replace(definitionJSON(group, "weights", "Weight", "Namespaced", "v1", ""), `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, `{"type":"object","properties":{"spec":`+schema+`}}`, 1)
			ended := make(chan time.Duration, 1)
			ctx, stop := context.WithCancel(context.Background())
			go func() { ended <- s.measureSlowestRead(ctx, t) }()
			meanwhile := sync.OnceValue(func() time.Duration {
				stop()
				return <-ended
			})
			defer meanwhile() // also if the test ends early
			weights := "/apis/" + group + "/v1/namespaces/default/weights"
			for _, r := range []request{
				{method: http.MethodPost, path: definitionsPath, body: body}, {path: weights},
				{method: http.MethodPost, path: weights, body: `{"apiVersion":"` + group + `/v1","kind":"Weight","metadata":{"name":"w"},"spec":{"f1":"abc"}}`},
				{path: "/openapi/v3/apis/" + group + "/v1"}, {path: "/openapi/v2"}, {path: "/apis"}, {method: http.MethodDelete, path: definitionsPath + "/weights." + group},
			} {
				if got := s.do(t, s.adminA, s.a, r); got.status >= 500 {
					t.Errorf("%s %s: %d %.300s", r.method, r.path, got.status, got.body)
				}
			}
			if took := meanwhile(); took > maxRequestDuration {
				t.Errorf("a request of b took %s meanwhile", took)
			}
			s.waitForStatus(t, s.adminA, s.a, definitionsPath+"/weights."+group, http.StatusNotFound)
		})
	}
}

// maxRequestDuration is how long a request may take on a machine that is busy with other tests; a blocked request takes
// longer.
const maxRequestDuration = 10 * time.Second

// measureSlowestRead reads in b until the context ends, and returns the duration of the slowest read.
func (e *env) measureSlowestRead(ctx context.Context, t *testing.T) time.Duration {
	var slowest time.Duration
	for ctx.Err() == nil {
		for _, path := range []string{confidentialPath, "/apis", "/openapi/v3"} {
			began := time.Now()
			if got := e.sendToShard(t, e.adminB, request{path: "/clusters/" + e.b + path}); got.status != http.StatusOK {
				t.Errorf("b, %s: %d %.300s", path, got.status, got.body)
			}
			slowest = max(slowest, time.Since(began))
		}
	}
	return slowest
}
