// Package api serves the objects of a cache by HTTP, with the stock handlers of Kubernetes where they work without a
// schema: reads in all representations (objects, tables, partial metadata, watches) and deletion. Create, update and
// patch are implemented here, because the stock handlers write managed fields into objects that must stay copies.
//
// Requests have their scope in the context (package scope) and the Kubernetes path; they are already authorized.
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
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/lru"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/store"
)

// maxCachedResources bounds the LRU cache of users' cached resources. Evicted ones are created again on demand.
const maxCachedResources = 1024

// Handler serves all resources.
type Handler struct {
	backend *store.Backend
	config  Config
	groups  []metav1.APIGroup
	lists   map[schema.GroupVersion]*metav1.APIResourceList
	served  map[schema.GroupVersionResource]*servedResource
	// cachedResources are the handlers of users' cached resources, by resource with or without identity.
	cachedResources *lru.Cache
	// serializer encodes objects and errors.
	serializer runtime.NegotiatedSerializer
}

// Config bounds requests.
type Config struct {
	// MinWatch is the minimum timeout of a watch without a timeout of the client.
	MinWatch time.Duration
	// MaxBody is the maximum size of an object, in bytes.
	MaxBody int64
	// MaxLevels bounds how deep the result of a patch nests. The caller must bound the bodies of requests.
	MaxLevels int
	// IsMember returns whether a user, which may be nil, is a shard or cache.
	IsMember func(user.Info) bool
}

// servedResource is one resource with its storage and handlers.
type servedResource struct {
	client.Resource
	store *store.Store
	scope *handlers.RequestScope
}

// New returns the handler of all resources of the backend.
func New(backend *store.Backend, config Config) (*Handler, error) {
	h := &Handler{
		backend: backend, config: config, serializer: newSerializer(),
		served: map[schema.GroupVersionResource]*servedResource{}, cachedResources: lru.New(maxCachedResources),
	}
	resources := append(client.Resources(), client.OtherVersions()...)
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

// Store returns the store of a built-in resource (client.Resources), or nil.
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
	return h.newServedResourceOf(resource, stored), nil
}

func (h *Handler) newServedResourceOf(resource client.Resource, stored *store.Store) *servedResource {
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
		Resource:                 client.MetricsResource(resource.GroupVersionResource), // for metrics only
		Kind:                     resource.GroupVersionKind(),
		HubGroupVersion:          resource.GroupVersion(),
		MetaGroupVersion:         metav1.SchemeGroupVersion,
		MaxRequestBodyBytes:      h.config.MaxBody,
	}}
}

// findResource returns the resource of a request, or nil. "<resource>:<identity>" exists for every resource and
// identity: only its objects show whether a user caches it.
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

// cachedObjectKind is the kind of users' cached resources without objects: in bookmarks and empty lists.
const cachedObjectKind = "CachedObject"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set(client.IncarnationHeader, h.backend.Incarnation())
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		h.writeError(apierrors.NewInternalError(fmt.Errorf("the request has no RequestInfo")), schema.GroupVersion{}, w, req)
		return
	}
	if !info.IsResourceRequest {
		h.serveDiscovery(w, req)
		return
	}
	if u, _ := request.UserFrom(req.Context()); req.Header.Get(client.MemberHeader) != "" || h.config.IsMember(u) {
		req = req.WithContext(store.AsMember(req.Context()))
	}
	resource := h.findResource(info)
	if resource == nil {
		var err error
		if resource, err = h.findWithoutIdentity(req.Context(), info); err != nil {
			h.writeError(err, schema.GroupVersion{}, w, req)
			return
		}
	}
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

// withMetricsResource returns the request with the resource that the metrics of the stock handlers record.
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

// withIncarnationCheck rejects a watch that resumes in another store.
func (h *Handler) withIncarnationCheck(resource *servedResource, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if seen := req.Header.Get(client.IncarnationHeader); seen != "" && seen != h.backend.Incarnation() {
			h.writeError(apierrors.NewResourceExpired("the resource version belongs to a previous store of this cache"), resource.GroupVersion(), w, req)
			return
		}
		serve(w, req)
	}
}

// WriteError responds with an error, as a Kubernetes status.
func (h *Handler) WriteError(err error, w http.ResponseWriter, req *http.Request) {
	h.writeError(err, schema.GroupVersion{}, w, req)
}

func (h *Handler) writeError(err error, gv schema.GroupVersion, w http.ResponseWriter, req *http.Request) {
	responsewriters.ErrorNegotiated(err, Codecs, gv, w, req)
}

// noAdmission admits everything: a cache has no admission.
type noAdmission struct{}

// Handles implements admission.Interface.
func (noAdmission) Handles(admission.Operation) bool { return false }

// fieldLabelConvertor converts only the names of fields in selectors.
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
