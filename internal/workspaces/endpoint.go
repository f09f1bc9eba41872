package workspaces

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/atoll-dev/atoll/internal/syncerview"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// wildcard is the segment of URLs for all logical clusters. Only lists, watches and discovery can use it.
const wildcard = "/clusters/*"

// Endpoint is one URL of the export.
type Endpoint struct {
	// URL is the URL without the segments of a logical cluster.
	URL string
	// Watches are the watches that its users share; nil if the endpoint has a timeout.
	Watches *SharedWatches

	config *rest.Config
	http   *http.Client
}

// NewEndpoint returns the endpoint at a URL, with the credentials of config.
func NewEndpoint(config *rest.Config, url string) (*Endpoint, error) {
	url = strings.TrimSuffix(url, "/")
	config = rest.CopyConfig(config)
	config.Host, config.APIPath = url+wildcard, ""
	config.QPS, config.RateLimiter = -1, nil // the server's priority and fairness applies
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next} })
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	e := &Endpoint{URL: url, config: config, http: httpClient}
	metadata, err := e.Metadata()
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	e.Watches = NewSharedWatches(metadata)
	return e, nil
}

// WithTimeout returns the endpoint with clients whose requests end after a time, including at the server. They cannot watch.
func (e *Endpoint) WithTimeout(timeout time.Duration) *Endpoint {
	limited := *e.http // with the same connections
	limited.Timeout = timeout
	return &Endpoint{URL: e.URL, config: e.config, http: &limited}
}

// Dynamic lists and watches the objects of all workspaces.
func (e *Endpoint) Dynamic() (dynamic.Interface, error) {
	client, err := dynamic.NewForConfigAndClient(e.config, e.http)
	if err != nil {
		return nil, err
	}
	return client, nil
}

// Metadata lists and watches the metadata of the objects of all workspaces.
func (e *Endpoint) Metadata() (metadata.Interface, error) {
	return metadata.NewForConfigAndClient(metadata.ConfigFor(e.config), e.http)
}

// Discovery discovers the resources of the export and its claims in workspaces.
func (e *Endpoint) Discovery() (discovery.DiscoveryInterface, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(e.config, e.http)
	if err != nil {
		return nil, err
	}
	return client, nil
}

// Clients returns a client for all logical clusters. It discovers only resources that are not among the given ones.
func (e *Endpoint) Clients(scheme *runtime.Scheme, resources ...Resource) (*Clients, error) {
	others, err := apiutil.NewDynamicRESTMapper(e.config, e.http)
	if err != nil {
		return nil, fmt.Errorf("building the mapper of %s: %w", e.URL, err)
	}
	mapper := NewMapper(others, resources...)
	c, err := client.New(e.config, client.Options{HTTPClient: e.http, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("building the client of %s: %w", e.URL, err)
	}
	return &Clients{c}, nil
}

type revisionKey struct{}

// WithRevision returns a context whose requests are refused by shards that have another description of the resource in the syncer's view.
func WithRevision(ctx context.Context, revision string) context.Context {
	if revision == "" {
		return ctx
	}
	return context.WithValue(ctx, revisionKey{}, revision)
}

type onceKey struct{}

// withoutRepetition returns a context whose requests fail at once if the server is unavailable. Clients of client-go repeat them ten times otherwise, as often as
// the server says when to try again.
func withoutRepetition(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, true)
}

// transport sends requests whose context has a logical cluster to that cluster, and others to all.
type transport struct{ next http.RoundTripper }

func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if revision, ok := request.Context().Value(revisionKey{}).(string); ok {
		request = request.Clone(request.Context())
		request.Header.Set(syncerview.RevisionHeader, revision)
	}
	cluster, ok := logicalcluster.From(request.Context())
	if !ok {
		return t.next.RoundTrip(request)
	}
	before, after, found := strings.Cut(request.URL.Path, wildcard)
	if !found {
		return nil, fmt.Errorf("%s %s: not a URL of an endpoint", request.Method, request.URL.Path)
	}
	scoped, url := *request, *request.URL // a round tripper must not modify the caller's request
	url.Path, url.RawPath = before+"/clusters/"+cluster.String()+after, ""
	scoped.URL = &url
	response, err := t.next.RoundTrip(&scoped)
	if err == nil && response.StatusCode == http.StatusServiceUnavailable && request.Context().Value(onceKey{}) != nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the wrapped transport, to close its idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
