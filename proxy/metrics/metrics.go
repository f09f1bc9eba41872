// Package metrics holds the metrics of a server in front of shards: its registry, the duration of requests, and the
// authorizer of the /metrics endpoint. It does not authenticate.
package metrics

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

// decisionTTL is how long a decision of the root shard is cached.
const decisionTTL = 10 * time.Second

// NewAuthorizer returns the authorizer of server-wide paths such as /metrics. It sends SubjectAccessReviews to the
// logical cluster "root". The host of config must have no /clusters path.
func NewAuthorizer(config *rest.Config) (authorizer.UnconditionalAuthorizer, error) {
	config = rest.CopyConfig(config)
	config.Host += logicalcluster.Root.Path().URLPath()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for access reviews in root: %w", err)
	}
	delegating, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             decisionTTL,
		DenyCacheTTL:              decisionTTL,
		WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("access reviews in root: %w", err)
	}
	return delegating, nil
}

// Metrics are the metrics of one server.
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

// Handler serves the metrics of the server and of its process.
func (m *Metrics) Handler() http.Handler {
	return metrics.HandlerFor(prometheus.Gatherers{legacyregistry.DefaultGatherer, m.Registry}, metrics.HandlerOpts{})
}

// WithRequestDuration observes the duration of requests.
func (m *Metrics) WithRequestDuration(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		started := time.Now()
		recorder := &statusRecorder{ResponseWriter: w, code: http.StatusOK}
		defer func() {
			m.duration.WithLabelValues(methodLabel(req.Method), strconv.Itoa(recorder.code)).Observe(time.Since(started).Seconds())
		}()
		next.ServeHTTP(recorder, req)
	})
}

// methodLabel bounds the values of the label: clients may send any method.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect:
		return method
	}
	return "other"
}

// statusRecorder records the status of a response. Unwrap lets http.ResponseController flush and hijack.
type statusRecorder struct {
	http.ResponseWriter
	code  int
	wrote bool
}

// Unwrap returns the underlying writer.
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
