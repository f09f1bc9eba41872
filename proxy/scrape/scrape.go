// Package scrape is the page of metrics of a server in front of shards: what is on it, how long requests take, and who may
// read it. Who is asking is found out elsewhere.
package scrape

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// remember is how long an answer of the root shard about access is remembered.
const remember = 10 * time.Second

// InRoot returns who decides about access as for everything that is of a whole server: the cluster "root", which is asked
// with SubjectAccessReviews. server is a configuration for a shard, whose host has no path of a logical cluster.
func InRoot(server *rest.Config) (authorizer.Authorizer, error) {
	config := rest.CopyConfig(server)
	config.Host += logicalcluster.Root.Path().URLPath()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for access reviews in root: %w", err)
	}
	decide, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             remember,
		DenyCacheTTL:              remember,
		WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("access reviews in root: %w", err)
	}
	return decide, nil
}

// Metrics are those of one server: its registry and the durations of its requests.
type Metrics struct {
	Registry metrics.KubeRegistry
	duration *metrics.HistogramVec
}

// New returns the metrics of one server.
func New() *Metrics {
	m := &Metrics{Registry: metrics.NewKubeRegistry(), duration: metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "proxy_request_duration_seconds", Help: "Duration of requests through the proxy.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}, StabilityLevel: metrics.ALPHA,
	}, []string{"method", "code"})}
	m.Registry.MustRegister(m.duration)
	return m
}

// Page returns the page with the server's own series and those of its process.
func (m *Metrics) Page() http.Handler {
	return metrics.HandlerFor(prometheus.Gatherers{legacyregistry.DefaultGatherer, m.Registry}, metrics.HandlerOpts{})
}

// Measured observes how long answers take.
func (m *Metrics) Measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		started := time.Now()
		recorder := &statusRecorder{ResponseWriter: w, code: http.StatusOK}
		defer func() {
			m.duration.WithLabelValues(knownMethod(req.Method), strconv.Itoa(recorder.code)).Observe(time.Since(started).Seconds())
		}()
		next.ServeHTTP(recorder, req)
	})
}

// knownMethod bounds the label: clients may send any word.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect:
		return method
	}
	return "other"
}

// statusRecorder remembers the status. Unwrap leads http.ResponseController to flushing and hijacking.
type statusRecorder struct {
	http.ResponseWriter
	code  int
	wrote bool
}

// Unwrap is explained at statusRecorder.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *statusRecorder) WriteHeader(code int) {
	if !r.wrote && (code >= 200 || code == http.StatusSwitchingProtocols) {
		r.code, r.wrote = code, true
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *statusRecorder) Write(p []byte) (int, error) {
	r.wrote = true
	return r.ResponseWriter.Write(p)
}
