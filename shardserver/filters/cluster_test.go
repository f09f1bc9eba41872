package filters

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// failingResolver is a resolver whose storage fails.
type failingResolver struct{ err error }

func (f failingResolver) Resolve(context.Context, logicalcluster.Path, func() bool) (logicalcluster.Name, error) {
	return logicalcluster.Name{}, f.err
}

func TestResolveErrorResponses(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"an unknown path":                        {errNotFound, http.StatusNotFound},
		"a path to another shard":                {errRemote, http.StatusTooManyRequests},
		"an unavailable workspace":               {errNotAvailable, http.StatusServiceUnavailable},
		"an internal error, without its message": {errors.New("secret-inner-detail"), http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was passed on") })
			response := httptest.NewRecorder()
			limiter := NewReadLimiter(func(*http.Request) string { return "" })
			WithCluster(next, http.NotFoundHandler(), failingResolver{tc.err}, limiter, legacyscheme.Codecs).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/clusters/root:a/api", nil))
			if response.Code != tc.want {
				t.Errorf("got %d, want %d", response.Code, tc.want)
			}
			if strings.Contains(response.Body.String(), "secret-inner-detail") {
				t.Errorf("the response contains internal details: %s", response.Body)
			}
		})
	}
}
