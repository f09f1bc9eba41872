package cacheserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/api"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/garbage"
	"github.com/atoll-dev/atoll/cacheserver/hierarchy"
	"github.com/atoll-dev/atoll/cacheserver/metrics"
	"github.com/atoll-dev/atoll/cacheserver/scope"
	"github.com/atoll-dev/atoll/cacheserver/store"
	"github.com/atoll-dev/atoll/internal/nesting"
)

// HandlerConfig configures a cache, wherever it is served.
type HandlerConfig struct {
	Store store.Config
	// Name identifies this cache in the installation; required with a Parent.
	Name string
	// Parent is the parent cache; nil: none.
	Parent *rest.Config
	// ShardTimeout is how long a shard without a Shard object may go without a report before its objects are deleted.
	ShardTimeout time.Duration
	// MinWatch is the shortest timeout of a watch, MaxBody the size limit of an object in bytes.
	MinWatch time.Duration
	MaxBody  int64
	// MaxLevels bounds how deep an object may nest; 0: the default.
	MaxLevels int
	// Quota are the limits of each shard.
	Quota store.Quota
	// AlwaysAllow are the paths without authorization.
	AlwaysAllow []string
}

// DefaultShardTimeout is the default of HandlerConfig.ShardTimeout.
const DefaultShardTimeout = 10 * time.Minute

// DefaultQuota are the default limits: one shard alone does not fill an etcd of the default quota.
var DefaultQuota = store.Quota{Objects: client.DefaultMaxObjects, Bytes: 256 << 20}

// requestInfoResolver resolves paths without their scope.
var requestInfoResolver = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// Handler is a cache behind an authentication chain: the user of each request is in its context.
type Handler struct {
	config     HandlerConfig
	backend    *store.Backend
	api        *api.Handler
	collector  *garbage.Collector
	parent     *client.Client // nil without a parent
	authorizer Authorizer
	// limited is api for requests whose bodies have been checked.
	limited http.Handler
	chain   http.Handler
}

// NewHandler opens the store and returns the cache. Callers must call Run for background work, and Close afterwards.
func NewHandler(ctx context.Context, config HandlerConfig) (*Handler, error) {
	var parent *client.Client
	if config.Parent != nil {
		var err error
		if parent, err = client.New(config.Parent, ""); err != nil {
			return nil, fmt.Errorf("the parent cache: %w", err)
		}
	}
	if config.MaxLevels == 0 {
		config.MaxLevels = nesting.Default().Request
	}
	config.Store.Quota, config.Store.OnQuotaExceeded = config.Quota, func(shard string) { metrics.RefusedWrites.WithLabelValues(shard).Inc() }
	backend, err := store.Open(ctx, config.Store)
	if err != nil {
		return nil, err
	}
	apiHandler, err := api.New(backend, api.Config{MinWatch: config.MinWatch, MaxBody: config.MaxBody, MaxLevels: config.MaxLevels, IsMember: isMember})
	if err != nil {
		backend.Close()
		return nil, err
	}
	h := &Handler{config: config, backend: backend, api: apiHandler, parent: parent, authorizer: Authorizer{AlwaysAllow: config.AlwaysAllow}}
	h.collector = garbage.New(backend, apiHandler.Store(client.Shards), apiHandler.Store(client.Reports), config.ShardTimeout)
	h.limited = nesting.WithBodyLimits(apiHandler, nesting.BodyConfig{
		Levels: config.MaxLevels, MaxBytes: config.MaxBody, WriteError: apiHandler.WriteError,
	})
	metrics.Register()
	h.chain = scope.WithScope(filters.WithRequestInfo(http.HandlerFunc(h.serve), requestInfoResolver), h.writeScopeError)
	return h, nil
}

// ServeHTTP implements http.Handler, for complete paths. It authorizes the user of the context.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) { h.chain.ServeHTTP(w, req) }

// Split divides the part of a path after client.Prefix into the scope, "/shards/<shard>/clusters/<cluster>", and the
// Kubernetes path behind it. The scope of an invalid path is empty.
func (h *Handler) Split(path string) (scopePath, rest string) {
	_, rest, err := scope.Parse(path)
	if err != nil || scope.IsMetrics(rest) {
		return "", path
	}
	return strings.TrimSuffix(strings.TrimSuffix(path, rest), "/"), rest
}

// Authorize authorizes a request to the path behind a scope that Split returned.
func (h *Handler) Authorize(ctx context.Context, scopePath string, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	target, _, err := scope.Parse(scopePath + "/")
	if err != nil {
		return authorizer.DecisionDeny, err.Error(), nil
	}
	return h.authorizer.Authorize(scope.NewContext(ctx, target), attributes)
}

// Authorizer authorizes requests whose scope is in the context, and whose attributes are those of the path behind it.
func (h *Handler) Authorizer() authorizer.Authorizer {
	return authorizer.AuthorizerFunc(h.authorizer.Authorize)
}

// Check returns an error if the store does not answer.
func (h *Handler) Check(ctx context.Context) error { return h.backend.Check(ctx) }

// Run runs the background work until the context ends, and returns when all of it has ended.
func (h *Handler) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { h.backend.Run(ctx) })
	running.Go(func() { h.collector.Run(ctx) })
	if h.parent != nil {
		running.Go(func() { h.backend.RunAsLeader(ctx, "hierarchy", h.syncParent) })
	}
	running.Wait()
}

// syncParent synchronizes objects with the parent cache until the context ends.
func (h *Handler) syncParent(ctx context.Context) {
	server := newLoopbackServer(h)
	defer server.Stop()
	local, err := server.Client()
	if err != nil {
		klog.ErrorS(err, "Failed to connect to this cache: it is not synchronized with its parent")
		return
	}
	hierarchy.New(hierarchy.Config{Name: h.config.Name, Local: local, Parent: h.parent, ShardTimeout: h.config.ShardTimeout}).Run(ctx)
	h.parent.CloseIdleConnections()
}

// Close closes the connection to the store.
func (h *Handler) Close() { h.backend.Close() }

func (h *Handler) serve(w http.ResponseWriter, req *http.Request) {
	if scope.IsHealth(req.URL.Path) {
		h.serveHealth(w, req)
		return
	}
	attributes, err := filters.GetAuthorizerAttributes(req.Context())
	if err != nil {
		h.api.WriteError(apierrors.NewInternalError(err), w, req)
		return
	}
	switch decision, reason, err := h.authorizer.Authorize(req.Context(), attributes); {
	case err != nil:
		h.api.WriteError(apierrors.NewInternalError(err), w, req)
	case decision != authorizer.DecisionAllow:
		h.api.WriteError(newForbiddenError(attributes, reason), w, req)
	default:
		h.limited.ServeHTTP(w, req)
	}
}

// serveHealth reports the health of the store, the only dependency.
func (h *Handler) serveHealth(w http.ResponseWriter, req *http.Request) {
	if err := h.backend.Check(req.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

func (h *Handler) writeScopeError(w http.ResponseWriter, req *http.Request, code int, err error) {
	if code == http.StatusBadRequest {
		h.api.WriteError(apierrors.NewBadRequest(err.Error()), w, req)
		return
	}
	h.api.WriteError(apierrors.NewGenericServerResponse(code, req.Method, schema.GroupResource{}, "", err.Error(), 0, true), w, req)
}

func newForbiddenError(attributes authorizer.Attributes, reason string) error {
	name := user.Anonymous
	if u := attributes.GetUser(); u != nil {
		name = u.GetName()
	}
	gr := schema.GroupResource{Group: attributes.GetAPIGroup(), Resource: attributes.GetResource()}
	return apierrors.NewForbidden(gr, attributes.GetName(), fmt.Errorf("user %q cannot %s it in the cache: %s", name, attributes.GetVerb(), reason))
}
