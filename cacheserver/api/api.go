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

// maxUserResources bounds how many resources of users are kept at hand. They are made again when asked for.
const maxUserResources = 1024

// Handler serves all resources.
type Handler struct {
	backend *store.Backend
	config  Config
	groups  []metav1.APIGroup
	lists   map[schema.GroupVersion]*metav1.APIResourceList
	served  map[schema.GroupVersionResource]*served
	// users are the resources that users cache, by served resource.
	users *lru.Cache
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

// served is one resource with what serves it.
type served struct {
	client.Resource
	store *store.Store
	scope *handlers.RequestScope
}

// New returns the handler of everything that the backend stores.
func New(backend *store.Backend, config Config) (*Handler, error) {
	h := &Handler{
		backend: backend, config: config, serializer: newSerializer(),
		served: map[schema.GroupVersionResource]*served{}, users: lru.New(maxUserResources),
	}
	resources := client.Resources()
	for _, resource := range resources {
		one, err := h.serve(resource)
		if err != nil {
			return nil, err
		}
		h.served[resource.GroupVersionResource] = one
	}
	h.groups, h.lists = discovery(resources)
	return h, nil
}

// Store returns the store of a resource that every cache has (client.Resources); nil for all others.
func (h *Handler) Store(gvr schema.GroupVersionResource) *store.Store {
	if one, ok := h.served[gvr]; ok {
		return one.store
	}
	return nil
}

func (h *Handler) serve(resource client.Resource) (*served, error) {
	stored, err := h.backend.New(resource)
	if err != nil {
		return nil, err
	}
	parameters := runtime.NewScheme()
	parameters.AddUnversionedTypes(resource.GroupVersion(), &metav1.ListOptions{}, &metav1.GetOptions{}, &metav1.DeleteOptions{})
	return &served{Resource: resource, store: stored, scope: &handlers.RequestScope{
		Namer:                    handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !resource.Namespaced},
		Serializer:               h.serializer,
		ParameterCodec:           runtime.NewParameterCodec(parameters),
		Creater:                  unstructuredscheme.NewUnstructuredCreator(),
		Typer:                    unstructuredscheme.NewUnstructuredObjectTyper(),
		Convertor:                labelsOnly{},
		UnsafeConvertor:          labelsOnly{},
		Defaulter:                unstructuredscheme.NewUnstructuredDefaulter(),
		EquivalentResourceMapper: runtime.NewEquivalentResourceRegistry(),
		TableConvertor:           stored,
		Resource:                 client.CountedAs(resource.GroupVersionResource), // in metrics alone
		Kind:                     resource.GroupVersionKind(),
		HubGroupVersion:          resource.GroupVersion(),
		MetaGroupVersion:         metav1.SchemeGroupVersion,
		MaxRequestBodyBytes:      h.config.MaxBody,
	}}, nil
}

// find returns what serves a request, or nil. "<resource>:<identity>" exists for every resource and identity: what a
// user caches is known to be there when it is there.
func (h *Handler) find(info *request.RequestInfo) *served {
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if one := h.served[gvr]; one != nil {
		if !one.Namespaced && info.Namespace != "" {
			return nil
		}
		return one
	}
	plain, identity, ok := strings.Cut(gvr.Resource, ":")
	if !ok || plain == "" || identity == "" || store.Plain(identity) || strings.ContainsAny(gvr.Resource, "/%.") {
		return nil
	}
	resource := client.Resource{GroupVersionResource: gvr, Kind: userKind, Namespaced: info.Namespace != ""}
	if cached, ok := h.users.Get(resource); ok {
		return cached.(*served)
	}
	one, err := h.serve(resource)
	if err != nil {
		return nil
	}
	h.users.Add(resource, one)
	return one
}

// userKind stands for the kind of what users cache where no object tells: in bookmarks and empty lists.
const userKind = "CachedObject"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set(client.IncarnationHeader, h.backend.Incarnation())
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		h.fail(apierrors.NewInternalError(fmt.Errorf("a request has no RequestInfo")), schema.GroupVersion{}, w, req)
		return
	}
	if !info.IsResourceRequest {
		h.discover(w, req)
		return
	}
	one := h.find(info)
	if one == nil || info.Subresource != "" {
		gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		h.fail(apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, schema.GroupResource{}, "", "", 0, true), gv, w, req)
		return
	}
	serve := h.verb(info.Verb, one)
	if serve == nil {
		h.fail(apierrors.NewMethodNotSupported(one.GroupResource(), info.Verb), one.GroupVersion(), w, req)
		return
	}
	info, req = counted(info, req)
	metrics.InstrumentHandlerFunc(strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, "",
		metrics.CleanScope(info), "cache-server", false, "", serve)(w, req)
}

// counted returns a request as the metrics of the stock handlers name it.
func counted(info *request.RequestInfo, req *http.Request) (*request.RequestInfo, *http.Request) {
	given := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	as := client.CountedAs(given)
	if as == given {
		return info, req
	}
	named := *info
	named.APIGroup, named.APIVersion, named.Resource = as.Group, as.Version, as.Resource
	return &named, req.WithContext(request.WithRequestInfo(req.Context(), &named))
}

func (h *Handler) verb(verb string, one *served) http.HandlerFunc {
	switch verb {
	case "get":
		return handlers.GetResource(one.store, one.scope)
	case "list":
		return handlers.ListResource(one.store, one.store, one.scope, false, h.config.MinWatch)
	case "watch":
		return h.sameIncarnation(one, handlers.ListResource(one.store, one.store, one.scope, true, h.config.MinWatch))
	case "create":
		return h.write(one, h.create)
	case "update":
		return h.write(one, h.update)
	case "patch":
		return h.write(one, h.patch)
	case "delete":
		return handlers.DeleteResource(one.store, true, one.scope, anything{})
	case "deletecollection":
		return handlers.DeleteCollection(one.store, true, one.scope, anything{})
	}
	return nil
}

// sameIncarnation refuses to go on with a watch of a store that was lost.
func (h *Handler) sameIncarnation(one *served, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if seen := req.Header.Get(client.IncarnationHeader); seen != "" && seen != h.backend.Incarnation() {
			h.fail(apierrors.NewResourceExpired("the resource version is of a store that this cache does not have any more"), one.GroupVersion(), w, req)
			return
		}
		serve(w, req)
	}
}

// Fail answers with an error, as a Kubernetes status.
func (h *Handler) Fail(err error, w http.ResponseWriter, req *http.Request) {
	h.fail(err, schema.GroupVersion{}, w, req)
}

func (h *Handler) fail(err error, gv schema.GroupVersion, w http.ResponseWriter, req *http.Request) {
	responsewriters.ErrorNegotiated(err, Codecs, gv, w, req)
}

// anything is the admission of a cache: there is none.
type anything struct{}

// Handles implements admission.Interface.
func (anything) Handles(admission.Operation) bool { return false }

// labelsOnly converts nothing but the names of fields in selectors.
type labelsOnly struct{}

// Convert implements runtime.ObjectConvertor.
func (labelsOnly) Convert(in, _, _ any) error { return fmt.Errorf("a cache does not convert %T", in) }

// ConvertToVersion implements runtime.ObjectConvertor.
func (labelsOnly) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (labelsOnly) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
}
