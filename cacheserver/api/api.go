// Package api serves what a cache stores by HTTP, with the stock handlers of Kubernetes where they do without a schema:
// reading in all forms (objects, tables, partial metadata, watches) and deletion. Creation, update and patch are here,
// because the stock ones write into the managed fields of what must stay a copy.
//
// Requests come with their scope in the context (package scope) and the Kubernetes path; they were authorized before.
package api

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/lru"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/store"
)

// maxCachedResources bounds how many resources of users are kept at hand. They are made again when asked for.
const maxCachedResources = 1024

// Handler serves all resources.
type Handler struct {
	backend *store.Backend
	config  Config
	groups  []metav1.APIGroup
	lists   map[schema.GroupVersion]*metav1.APIResourceList
	served  map[schema.GroupVersionResource]*servedResource
	// cachedResources are the resources that users cache, by served resource.
	cachedResources *lru.Cache
	// serializer writes objects and errors.
	serializer runtime.NegotiatedSerializer
}

// Config bounds requests.
type Config struct {
	// MinWatch is the least time that a watch stays open for, if the client does not say.
	MinWatch time.Duration
	// MaxBody is the size of the largest object, in bytes.
	MaxBody int64
}

// servedResource is one resource with what serves it.
type servedResource struct {
	client.Resource
	store *store.Store
	scope *handlers.RequestScope
}

// New returns the handler of everything that the backend stores.
func New(backend *store.Backend, config Config) (*Handler, error) {
	h := &Handler{
		backend: backend, config: config, serializer: newSerializer(),
		served: map[schema.GroupVersionResource]*servedResource{}, cachedResources: lru.New(maxCachedResources),
	}
	resources := client.Resources()
	for _, resource := range resources {
		entry, err := h.newServedResource(resource)
		if err != nil {
			return nil, err
		}
		h.served[resource.GroupVersionResource] = entry
	}
	h.groups, h.lists = newDiscoveryDocuments(resources)
	return h, nil
}

// Store returns the store of a resource that every cache has (client.Resources); nil for all others.
func (h *Handler) Store(gvr schema.GroupVersionResource) *store.Store {
	if entry, ok := h.served[gvr]; ok {
		return entry.store
	}
	return nil
}

func (h *Handler) newServedResource(resource client.Resource) (*servedResource, error) {
	stored, err := h.backend.NewStore(resource)
	if err != nil {
		return nil, err
	}
	parameters := runtime.NewScheme()
	parameters.AddUnversionedTypes(resource.GroupVersion(), &metav1.ListOptions{}, &metav1.GetOptions{}, &metav1.DeleteOptions{})
	return &servedResource{Resource: resource, store: stored, scope: &handlers.RequestScope{
		Namer:                    handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !resource.Namespaced},
		Serializer:               h.serializer,
		ParameterCodec:           runtime.NewParameterCodec(parameters),
		Creater:                  unstructuredscheme.NewUnstructuredCreator(),
		Typer:                    unstructuredscheme.NewUnstructuredObjectTyper(),
		Convertor:                fieldLabelConvertor{},
		UnsafeConvertor:          fieldLabelConvertor{},
		Defaulter:                unstructuredscheme.NewUnstructuredDefaulter(),
		EquivalentResourceMapper: runtime.NewEquivalentResourceRegistry(),
		TableConvertor:           stored,
		Resource:                 client.MetricsResource(resource.GroupVersionResource), // in metrics alone
		Kind:                     resource.GroupVersionKind(),
		HubGroupVersion:          resource.GroupVersion(),
		MetaGroupVersion:         metav1.SchemeGroupVersion,
		MaxRequestBodyBytes:      h.config.MaxBody,
	}}, nil
}

// findResource returns what serves a request, or nil. "<resource>:<identity>" exists for every resource and identity: what a
// user caches is known to be there when it is there.
func (h *Handler) findResource(info *request.RequestInfo) *servedResource {
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if match := h.served[gvr]; match != nil {
		if !match.Namespaced && info.Namespace != "" {
			return nil
		}
		return match
	}
	name, identity, ok := strings.Cut(gvr.Resource, ":")
	if !ok || name == "" || identity == "" || store.IsReservedIdentity(identity) || strings.ContainsAny(gvr.Resource, "/%.") {
		return nil
	}
	resource := client.Resource{GroupVersionResource: gvr, Kind: cachedObjectKind, Namespaced: info.Namespace != ""}
	if cached, ok := h.cachedResources.Get(resource); ok {
		return cached.(*servedResource)
	}
	match, err := h.newServedResource(resource)
	if err != nil {
		return nil
	}
	h.cachedResources.Add(resource, match)
	return match
}

// cachedObjectKind stands for the kind of what users cache where no object tells: in bookmarks and empty lists.
const cachedObjectKind = "CachedObject"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set(client.IncarnationHeader, h.backend.Incarnation())
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		h.writeError(apierrors.NewInternalError(fmt.Errorf("a request has no RequestInfo")), schema.GroupVersion{}, w, req)
		return
	}
	if !info.IsResourceRequest {
		h.serveDiscovery(w, req)
		return
	}
	resource := h.findResource(info)
	if resource == nil || info.Subresource != "" {
		gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		h.writeError(apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, schema.GroupResource{}, "", "", 0, true), gv, w, req)
		return
	}
	serve := h.handlerFor(info.Verb, resource)
	if serve == nil {
		h.writeError(apierrors.NewMethodNotSupported(resource.GroupResource(), info.Verb), resource.GroupVersion(), w, req)
		return
	}
	info, req = withMetricsResource(info, req)
	metrics.InstrumentHandlerFunc(strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, "",
		metrics.CleanScope(info), "cache-server", false, "", serve)(w, req)
}

// withMetricsResource returns a request as the metrics of the stock handlers name it.
func withMetricsResource(info *request.RequestInfo, req *http.Request) (*request.RequestInfo, *http.Request) {
	given := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	metricsResource := client.MetricsResource(given)
	if metricsResource == given {
		return info, req
	}
	metricsInfo := *info
	metricsInfo.APIGroup, metricsInfo.APIVersion, metricsInfo.Resource = metricsResource.Group, metricsResource.Version, metricsResource.Resource
	return &metricsInfo, req.WithContext(request.WithRequestInfo(req.Context(), &metricsInfo))
}

func (h *Handler) handlerFor(verb string, resource *servedResource) http.HandlerFunc {
	switch verb {
	case "get":
		return handlers.GetResource(resource.store, resource.scope)
	case "list":
		return handlers.ListResource(resource.store, resource.store, resource.scope, false, h.config.MinWatch)
	case "watch":
		return h.withIncarnationCheck(resource, handlers.ListResource(resource.store, resource.store, resource.scope, true, h.config.MinWatch))
	case "create":
		return h.handleWrite(resource, h.create)
	case "update":
		return h.handleWrite(resource, h.update)
	case "patch":
		return h.handleWrite(resource, h.patch)
	case "delete":
		return handlers.DeleteResource(resource.store, true, resource.scope, noAdmission{})
	case "deletecollection":
		return handlers.DeleteCollection(resource.store, true, resource.scope, noAdmission{})
	}
	return nil
}

// withIncarnationCheck refuses to go on with a watch of a store that was lost.
func (h *Handler) withIncarnationCheck(resource *servedResource, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if seen := req.Header.Get(client.IncarnationHeader); seen != "" && seen != h.backend.Incarnation() {
			h.writeError(apierrors.NewResourceExpired("the resource version is of a store that this cache does not have any more"), resource.GroupVersion(), w, req)
			return
		}
		serve(w, req)
	}
}

// WriteError answers with an error, as a Kubernetes status.
func (h *Handler) WriteError(err error, w http.ResponseWriter, req *http.Request) {
	h.writeError(err, schema.GroupVersion{}, w, req)
}

func (h *Handler) writeError(err error, gv schema.GroupVersion, w http.ResponseWriter, req *http.Request) {
	responsewriters.ErrorNegotiated(err, Codecs, gv, w, req)
}

// noAdmission is the admission of a cache: there is none.
type noAdmission struct{}

// Handles implements admission.Interface.
func (noAdmission) Handles(admission.Operation) bool { return false }

// fieldLabelConvertor converts nothing but the names of fields in selectors.
type fieldLabelConvertor struct{}

// Convert implements runtime.ObjectConvertor.
func (fieldLabelConvertor) Convert(in, _, _ any) error {
	return fmt.Errorf("a cache does not convert %T", in)
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (fieldLabelConvertor) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (fieldLabelConvertor) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
}
