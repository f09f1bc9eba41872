package filters

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

func TestSelectorLimit(t *testing.T) {
	for name, test := range map[string]struct {
		query string
		want  int
	}{
		"a short selector":               {"labelSelector=a%3Db", http.StatusOK},
		"a long selector":                {"labelSelector=k+in+(a,b,c,d,e,f,g,h)", http.StatusBadRequest},
		"both selectors count":           {"labelSelector=aaaaaaaaaaaa&fieldSelector=bbbbbbbbbbbb", http.StatusBadRequest},
		"selectors that are given twice": {"labelSelector=aaaaaaaaaaaa&labelSelector=bbbbbbbbbbbb", http.StatusBadRequest},
		"another parameter may be long":  {"continue=" + strings.Repeat("x", 30), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			req := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/configmaps?"+test.query, nil)
			info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "configmaps"}
			recorder := httptest.NewRecorder()
			WithSelectorLimit(handler, 20, legacyscheme.Codecs).ServeHTTP(recorder, req.WithContext(request.WithRequestInfo(req.Context(), info)))
			if recorder.Code != test.want {
				t.Errorf("got %d %s, want %d", recorder.Code, recorder.Body, test.want)
			}
		})
	}
}
