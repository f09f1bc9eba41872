package crdhandler

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

	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Handler serves requests for custom resources and delegates all others. The API server's filters, authorization
// included, run before it.
type Handler struct {
	registry   *crdregistry.Registry
	metadata   *crdstorage.MetadataHandler
	serializer runtime.NegotiatedSerializer
	protobuf   runtime.Decoder
	maxBody    int64
	virtual    atomic.Pointer[http.Handler]
	// subresources serves custom subresources; nil if they are not enabled.
	subresources Subresources
}

// Subresources serves custom subresources of bound resources, as *virtualstorage.Subresources does.
type Subresources interface {
	// Serve returns false if the export of the resource does not define the subresource of the request.
	Serve(w http.ResponseWriter, req *http.Request, bound bindings.BoundResource) bool
}

// writeVerbs are the verbs that can create an object.
var writeVerbs = []string{"create", "update", "patch"}

// NewHandler returns a handler over a registry, whose Compiler was created with the same config.
func NewHandler(registry *crdregistry.Registry, cfg Config, serializer runtime.NegotiatedSerializer) *Handler {
	return &Handler{
		registry: registry, metadata: crdstorage.NewMetadataHandler(cfg.MinRequestTimeout), serializer: serializer,
		protobuf: newProtobufDecoder(cfg.MaxLevels), maxBody: cfg.MaxRequestBodyBytes,
	}
}

// SetVirtual sets the handler of bound resources whose objects are not stored on this shard. It gets the bound resource
// of a request with bindings.BoundResourceFrom.
func (h *Handler) SetVirtual(handler http.Handler) { h.virtual.Store(&handler) }

// SetSubresources sets what serves custom subresources. It must be called before the first request.
func (h *Handler) SetSubresources(subresources Subresources) { h.subresources = subresources }

// Wrap returns an http.Handler that delegates to next what the handler does not serve.
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
		case identity == "" && h.registry.ServesBuiltIn(req.Context(), gr):
			h.serveBuiltIn(w, req, info, gr, next)
		default:
			h.serve(w, req, info, gr, next)
		}
	})
}

// serve serves a request to one logical cluster.
func (h *Handler) serve(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, gr schema.GroupResource, next http.Handler) {
	identity := bindings.IdentityFrom(req.Context())
	if b, ok := h.registry.Bindings.Get(req.Context(), gr); ok && (identity == "" || identity == b.Identity) {
		if h.subresources != nil && subresources.IsCustom(info.Subresource) && h.subresources.Serve(w, req, b) {
			return
		}
		if b.Virtual {
			h.serveVirtual(w, req, info, b)
			return
		}
	}
	lease, err := h.registry.Acquire(req.Context(), gr, slices.Contains(writeVerbs, info.Verb))
	switch {
	case err != nil:
		h.writeInternalError(w, req, info, err)
	case lease == nil && h.registry.ServesBuiltIn(req.Context(), gr) && (identity == "" || h.registry.HasBuiltInIdentity(gr, identity)):
		h.serveBuiltIn(w, req, info, gr, next) // the binding was read after the check in Wrap
	case lease == nil && (identity != "" || h.registry.BuiltIn.Has(gr)):
		h.writeError(w, req, info, apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, gr, info.Name, "", 0, true))
	case lease == nil:
		next.ServeHTTP(w, req)
	default:
		h.serveLease(w, req, info, lease)
	}
}

// serveLease serves a request with a lease, and releases it.
func (h *Handler) serveLease(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, lease *crdregistry.Lease) {
	defer lease.Release()
	handlers, err := lease.CRD.Handlers()
	if err != nil {
		h.writeInternalError(w, req, info, err)
		return
	}
	ctx := req.Context()
	if lease.Terminating {
		ctx = withTerminating(ctx)
	}
	if info.Verb == "watch" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer lease.OnChange(cancel)()
	}
	req = req.WithContext(ctx)
	if handlers.Reads.Serve(w, req) {
		return
	}
	if kind, ok := isStrategicMergePatch(req, info, lease.CRD); ok {
		h.serveStrategicMergePatch(w, req, info, handlers.Stock, kind)
		return
	}
	if hasProtobufBody(req, info) {
		decoded, err := h.protobufToJSON(w, req, info, lease.CRD)
		if err != nil {
			h.writeError(w, req, info, err)
			return
		}
		req = decoded
	}
	handlers.Stock.ServeHTTP(w, req)
}

// serveIdentity serves a request for a resource with an identity over all logical clusters.
func (h *Handler) serveIdentity(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, gr schema.GroupResource, identity string) {
	lease, err := h.registry.AcquireIdentity(req.Context(), gr, identity)
	switch {
	case err != nil:
		h.writeInternalError(w, req, info, err)
	case lease == nil:
		h.writeError(w, req, info, apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, gr, info.Name, "", 0, true))
	default:
		h.serveLease(w, req, info, lease)
	}
}

// serveBuiltIn delegates a request for a built-in resource, and rejects creations while the binding of the resource is
// being deleted.
func (h *Handler) serveBuiltIn(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, gr schema.GroupResource, next http.Handler) {
	if info.Verb == "create" && info.Subresource == "" {
		if b, ok := h.registry.Bindings.Get(req.Context(), gr); ok && b.Terminating && h.registry.IsBuiltIn(b.Resource) {
			h.writeError(w, req, info, newCreateForbiddenError(gr, info.Name))
			return
		}
	}
	next.ServeHTTP(w, req)
}

// serveVirtual serves a request for a bound resource whose objects a virtual workspace serves.
func (h *Handler) serveVirtual(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, b bindings.BoundResource) {
	handler := h.virtual.Load()
	if handler == nil {
		h.writeError(w, req, info, apierrors.NewServiceUnavailable(fmt.Sprintf("%s is currently unavailable: nothing on this shard serves the virtual storage of its export", b.GroupResource)))
		return
	}
	(*handler).ServeHTTP(w, req.WithContext(bindings.WithBoundResource(req.Context(), b)))
}

// serveMetadata serves a request over all logical clusters without an identity. The resource may have several storages,
// and definitions that have only the metadata in common, so it serves metadata only.
func (h *Handler) serveMetadata(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, gr schema.GroupResource, next http.Handler) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	changed := h.registry.Resources.Changed()
	storages := listStorages(h.registry.Resources, gr)
	if h.registry.BuiltIn.Has(gr) && len(storages) < 2 {
		next.ServeHTTP(w, req)
		return
	}
	if info.Verb == "watch" { // it must end when a storage is added or removed
		go func() {
			defer cancel()
			for slices.Equal(storages, listStorages(h.registry.Resources, gr)) {
				select {
				case <-changed:
					changed = h.registry.Resources.Changed()
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

// listStorages returns all storages of a resource, in the order of their keys.
func listStorages(registry *storage.Registry, gr schema.GroupResource) []*storage.Resource {
	var storages []*storage.Resource
	for _, resource := range registry.AllStorages() {
		if resource.GVR.GroupResource() == gr {
			storages = append(storages, resource)
		}
	}
	return storages
}

// writeInternalError writes an error with status 500, or 503 for a ServiceUnavailable.
func (h *Handler) writeInternalError(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, err error) {
	if apierrors.IsServiceUnavailable(err) {
		h.writeError(w, req, info, err)
		return
	}
	h.writeError(w, req, info, apierrors.NewInternalError(fmt.Errorf("serving custom resources: %w", err)))
}

func (h *Handler) writeError(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, err error) {
	responsewriters.ErrorNegotiated(err, h.serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
}
