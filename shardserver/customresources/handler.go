package customresources

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/raw"
)

// Handler serves requests for custom resources and hands all others on. It stands below the whole chain of the API
// server (wall W7).
type Handler struct {
	catalog    *Catalog
	metadata   *raw.Metadata
	serializer runtime.NegotiatedSerializer
	maxBody    int64
}

// writingVerbs are those that may leave an object behind.
var writingVerbs = []string{"create", "update", "patch"}

// NewHandler returns a handler over a catalog.
func NewHandler(catalog *Catalog, serving Serving, serializer runtime.NegotiatedSerializer) *Handler {
	catalog.compile = compiler(serving, catalog.storageOf)
	return &Handler{catalog: catalog, metadata: raw.NewMetadata(serving.MinRequestTimeout), serializer: serializer, maxBody: serving.MaxRequestBodyBytes}
}

// Wrap puts the handler before what serves everything else.
func (h *Handler) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.APIGroup == "" {
			next.ServeHTTP(w, req)
			return
		}
		gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		cluster, ok := logicalcluster.From(req.Context())
		switch {
		case !ok || h.catalog.shadowed(req.Context(), gr):
			next.ServeHTTP(w, req)
		case cluster.IsWildcard():
			h.serveMetadata(w, req, gr, next)
		default:
			h.serve(w, req, info, gr, next)
		}
	})
}

// serve answers a request to one logical cluster.
func (h *Handler) serve(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, gr schema.GroupResource, next http.Handler) {
	use, err := h.catalog.use(req.Context(), gr, slices.Contains(writingVerbs, info.Verb))
	if err != nil {
		h.fail(w, req, info, err)
		return
	}
	if use == nil {
		next.ServeHTTP(w, req)
		return
	}
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
	compiled.stock.ServeHTTP(w, req)
}

// serveMetadata answers a request over all logical clusters. Their definitions may disagree about everything but the
// metadata, so nothing else is offered.
func (h *Handler) serveMetadata(w http.ResponseWriter, req *http.Request, gr schema.GroupResource, next http.Handler) {
	storage := h.catalog.storage(gr)
	if storage == nil || !h.metadata.Serve(w, req, storage) {
		next.ServeHTTP(w, req)
	}
}

// fail answers that a definition cannot be served.
func (h *Handler) fail(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, err error) {
	h.refuse(w, req, info, apierrors.NewInternalError(fmt.Errorf("serving custom resources: %w", err)))
}

func (h *Handler) refuse(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, err error) {
	responsewriters.ErrorNegotiated(err, h.serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
}
