package customresources

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Handler serves requests for custom resources and hands all others on. It stands below the whole chain of the API
// server (wall W7).
type Handler struct {
	catalog    *Catalog
	metadata   *crdstorage.Metadata
	serializer runtime.NegotiatedSerializer
	maxBody    int64
	virtual    atomic.Pointer[http.Handler]
}

// writingVerbs are those that may leave an object behind.
var writingVerbs = []string{"create", "update", "patch"}

// NewHandler returns a handler over a catalog.
func NewHandler(catalog *Catalog, serving Serving, serializer runtime.NegotiatedSerializer) *Handler {
	catalog.compile = compiler(serving)
	return &Handler{catalog: catalog, metadata: crdstorage.NewMetadata(serving.MinRequestTimeout), serializer: serializer, maxBody: serving.MaxRequestBodyBytes}
}

// SetVirtual installs what serves bound resources whose objects are not stored on this shard. It finds what a request is
// about by bindings.BoundFrom.
func (h *Handler) SetVirtual(handler http.Handler) { h.virtual.Store(&handler) }

// Wrap puts the handler before what serves everything else.
func (h *Handler) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, req)
			return
		}
		gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		cluster, ok := logicalcluster.From(req.Context())
		identity := bindings.IdentityFrom(req.Context())
		switch {
		case !ok:
			next.ServeHTTP(w, req)
		case cluster.IsWildcard() && identity != "":
			h.serveIdentity(w, req, info, gr, identity)
		case cluster.IsWildcard():
			h.serveMetadata(w, req, info, gr, next)
		case identity == "" && h.catalog.shadowed(req.Context(), gr):
			h.serveCompiledIn(w, req, info, gr, next)
		default:
			h.serve(w, req, info, gr, next)
		}
	})
}

// serve answers a request to one logical cluster.
func (h *Handler) serve(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, gr schema.GroupResource, next http.Handler) {
	if b, ok := h.catalog.Bindings.Get(req.Context(), gr); ok && b.Virtual {
		h.serveVirtual(w, req, info, b)
		return
	}
	use, err := h.catalog.use(req.Context(), gr, slices.Contains(writingVerbs, info.Verb))
	identity := bindings.IdentityFrom(req.Context())
	switch {
	case err != nil:
		h.fail(w, req, info, err)
	case use == nil && h.catalog.shadowed(req.Context(), gr) && (identity == "" || h.catalog.hasIdentity(gr, identity)):
		h.serveCompiledIn(w, req, info, gr, next) // its binding was found just now
	case use == nil && (identity != "" || h.catalog.CompiledIn.Has(gr)):
		h.refuse(w, req, info, apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, gr, info.Name, "", 0, true))
	case use == nil:
		next.ServeHTTP(w, req)
	default:
		h.serveUse(w, req, info, use)
	}
}

// serveUse answers a request by what was found for it, and gives that back.
func (h *Handler) serveUse(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, use *use) {
	defer h.catalog.done(use)
	compiled, err := use.content.get()
	if err != nil {
		h.fail(w, req, info, err)
		return
	}
	ctx := req.Context()
	if use.terminating {
		ctx = withTerminating(ctx)
	}
	if info.Verb == "watch" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer h.catalog.watch(use, cancel)()
	}
	req = req.WithContext(ctx)
	if compiled.reads.Serve(w, req) {
		return
	}
	if kind, ok := strategic(req, info, use.content); ok {
		h.serveStrategic(w, req, info, compiled.stock, kind)
		return
	}
	if inProtobuf(req, info) {
		translated, err := h.translated(w, req, info, use.content)
		if err != nil {
			h.refuse(w, req, info, err)
			return
		}
		req = translated
	}
	compiled.stock.ServeHTTP(w, req)
}

// serveIdentity answers a request for a resource with an identity over all logical clusters.
func (h *Handler) serveIdentity(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, gr schema.GroupResource, identity string) {
	use, err := h.catalog.useIdentity(req.Context(), gr, identity)
	switch {
	case err != nil:
		h.fail(w, req, info, err)
	case use == nil:
		h.refuse(w, req, info, apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, gr, info.Name, "", 0, true))
	default:
		h.serveUse(w, req, info, use)
	}
}

// serveCompiledIn hands on a request for what is compiled in, unless it would create what is about to go with the binding
// that brought it.
func (h *Handler) serveCompiledIn(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, gr schema.GroupResource, next http.Handler) {
	if info.Verb == "create" && info.Subresource == "" {
		if b, ok := h.catalog.Bindings.Get(req.Context(), gr); ok && b.Terminating && h.catalog.native(b.Resource) {
			h.refuse(w, req, info, creationRefused(gr, info.Name))
			return
		}
	}
	next.ServeHTTP(w, req)
}

// serveVirtual hands on a request for a bound resource that a virtual workspace has the objects of.
func (h *Handler) serveVirtual(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, b bindings.BoundResource) {
	handler := h.virtual.Load()
	if handler == nil {
		h.refuse(w, req, info, apierrors.NewServiceUnavailable(fmt.Sprintf("%s is currently unavailable: nothing on this shard serves the virtual storage of its export", b.GroupResource)))
		return
	}
	(*handler).ServeHTTP(w, req.WithContext(bindings.WithBoundResource(req.Context(), b)))
}

// serveMetadata answers a request over all logical clusters that names no identity. What it is about may have several
// storages, and definitions that disagree about everything but the metadata, so nothing else is offered.
func (h *Handler) serveMetadata(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, gr schema.GroupResource, next http.Handler) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	changed := h.catalog.Registry.Changed()
	storages := storagesOf(h.catalog.Registry, gr)
	if h.catalog.CompiledIn.Has(gr) && len(storages) < 2 {
		next.ServeHTTP(w, req)
		return
	}
	if info.Verb == "watch" { // it must end when a storage comes, or goes
		go func() {
			defer cancel()
			for slices.Equal(storages, storagesOf(h.catalog.Registry, gr)) {
				select {
				case <-changed:
					changed = h.catalog.Registry.Changed()
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	stores := make([]storage.Store, 0, len(storages))
	for _, resource := range storages {
		stores = append(stores, resource.Store)
	}
	if !h.metadata.Serve(w, req.WithContext(ctx), gr, stores...) {
		next.ServeHTTP(w, req)
	}
}

// storagesOf returns all storages of a resource, in the order of their keys.
func storagesOf(registry *storage.Registry, gr schema.GroupResource) []*storage.Resource {
	var storages []*storage.Resource
	for _, resource := range registry.Stored() {
		if resource.GVR.GroupResource() == gr {
			storages = append(storages, resource)
		}
	}
	return storages
}

// fail answers that something cannot be served.
func (h *Handler) fail(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, err error) {
	if apierrors.IsServiceUnavailable(err) {
		h.refuse(w, req, info, err)
		return
	}
	h.refuse(w, req, info, apierrors.NewInternalError(fmt.Errorf("serving custom resources: %w", err)))
}

func (h *Handler) refuse(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, err error) {
	responsewriters.ErrorNegotiated(err, h.serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
}
