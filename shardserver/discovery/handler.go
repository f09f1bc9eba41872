package discovery

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apidiscoveryv2conversion "k8s.io/apiserver/pkg/apis/apidiscovery/v2"
	stock "k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"

	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
)

// limits bound the cache. Documents of an API set with tens of definitions take some 100 KiB.
var limits = documents.Limits{Count: 512, Bytes: 64 << 20, Builds: 2}

// Handler serves discovery.
type Handler struct {
	resolver   APISetResolver
	next       http.Handler
	addresses  stock.Addresses
	serializer runtime.NegotiatedSerializer
	// aggregated serializes aggregated discovery, whose types are in no other scheme.
	aggregated runtime.NegotiatedSerializer
	cache      *documents.Cache[Hash, *document]
}

// APISetResolver resolves the context of a request to an API set.
type APISetResolver interface {
	Resolve(ctx context.Context) (*APISet, error)
}

// NewHandler returns a handler of the discovery of the request's logical cluster. It delegates every other request to next.
func NewHandler(next http.Handler, resolver APISetResolver, addresses stock.Addresses, codecs runtime.NegotiatedSerializer) *Handler {
	scheme := runtime.NewScheme()
	utilruntime.Must(apidiscoveryv2.AddToScheme(scheme))
	utilruntime.Must(apidiscoveryv2beta1.AddToScheme(scheme))
	utilruntime.Must(apidiscoveryv2conversion.RegisterConversions(scheme))
	return &Handler{
		resolver: resolver, next: next, addresses: addresses,
		serializer: codecs, aggregated: serializer.NewCodecFactory(scheme),
		cache: documents.New[Hash, *document](limits),
	}
}

// Stats returns the statistics of the cache.
func (h *Handler) Stats() documents.Stats { return h.cache.Stats() }

// document is the discovery of one API set.
type document struct {
	// core is served at /api, named at /apis.
	core, named aggregatedList
	groups      map[string]metav1.APIGroup
	order       []string
	versions    map[schema.GroupVersion][]metav1.APIResource
}

type aggregatedList struct {
	items []apidiscoveryv2.APIGroupDiscovery
	tag   string
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(req.URL.Path, "/"), "/"), "/")
	isCore, isNamed := parts[0] == "api" && len(parts) <= 2, parts[0] == "apis" && len(parts) <= 3 && (len(parts) == 1 || parts[1] != "")
	if req.Method != http.MethodGet || !isCore && !isNamed {
		h.next.ServeHTTP(w, req)
		return
	}
	set, err := h.resolver.Resolve(req.Context())
	if err != nil {
		WriteError(w, req, h.serializer, err)
		return
	}
	found, err := h.cache.Get(req.Context(), set.Key(), set.buildDocument)
	if err != nil {
		WriteError(w, req, h.serializer, fmt.Errorf("building the discovery documents: %w", err))
		return
	}
	switch {
	case len(parts) == 1 && h.wantsAggregated(req):
		h.serveAggregated(w, req, found, parts[0])
	case len(parts) == 1 && isNamed:
		h.serveGroups(w, req, found)
	case len(parts) == 1:
		h.next.ServeHTTP(w, req) // the versions of the core group, and addresses
	case len(parts) == 2 && isNamed:
		h.serveGroup(w, req, found, parts[1])
	case isCore:
		h.serveVersion(w, req, found, schema.GroupVersion{Version: parts[1]})
	default:
		h.serveVersion(w, req, found, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
}

// WriteError writes an error, with the Kubernetes status that it wraps, if any.
func WriteError(w http.ResponseWriter, req *http.Request, serializer runtime.NegotiatedSerializer, err error) {
	var status *apierrors.StatusError
	switch {
	case req.Context().Err() != nil:
		status = apierrors.NewTimeoutError("the request ended before the document was built", 1)
	case !errors.As(err, &status):
		status = apierrors.NewInternalError(err)
	}
	responsewriters.ErrorNegotiated(status, serializer, schema.GroupVersion{}, w, req)
}

func (h *Handler) wantsAggregated(req *http.Request) bool {
	media, _ := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), h.aggregated.SupportedMediaTypes(), aggregated.DiscoveryEndpointRestrictions)
	return aggregated.IsAggregatedDiscoveryGVK(media.Convert)
}

func (h *Handler) serveAggregated(w http.ResponseWriter, req *http.Request, found *document, path string) {
	list := found.named
	if path == "api" {
		list = found.core
	}
	metrics.InstrumentHandlerFunc(http.MethodGet, "", "", "", path, "", metrics.APIServerComponent, false, "", func(w http.ResponseWriter, req *http.Request) {
		media, _, err := negotiation.NegotiateOutputMediaType(req, h.aggregated, aggregated.DiscoveryEndpointRestrictions)
		if err != nil {
			WriteError(w, req, h.serializer, err)
			return
		}
		visible := apidiscoveryv2.APIGroupDiscoveryList{Items: list.items} // encoding modifies it
		aggregated.ServeHTTPWithETag(&visible, list.tag, media.Convert.GroupVersion(), h.aggregated, w, req)
	})(w, req)
}

func (h *Handler) serveGroups(w http.ResponseWriter, req *http.Request, found *document) {
	all := stock.NewRootAPIsHandler(h.addresses, h.serializer)
	for _, name := range found.order {
		all.AddGroup(found.groups[name])
	}
	all.ServeHTTP(w, req)
}

func (h *Handler) serveGroup(w http.ResponseWriter, req *http.Request, found *document, name string) {
	group, ok := found.groups[name]
	if !ok {
		http.NotFound(w, req)
		return
	}
	stock.NewAPIGroupHandler(h.serializer, group).ServeHTTP(w, req)
}

func (h *Handler) serveVersion(w http.ResponseWriter, req *http.Request, found *document, version schema.GroupVersion) {
	resources, ok := found.versions[version]
	if !ok {
		http.NotFound(w, req)
		return
	}
	lister := stock.APIResourceListerFunc(func() []metav1.APIResource { return resources })
	stock.NewAPIVersionHandler(h.serializer, version, lister).ServeHTTP(w, req)
}

// buildDocument builds the documents of an API set, and returns their approximate size in memory.
func (s *APISet) buildDocument() (*document, int64, error) {
	built := &document{groups: map[string]metav1.APIGroup{}, versions: map[schema.GroupVersion][]metav1.APIResource{}}
	for _, group := range s.mergeGroups() {
		visible := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group.name}}
		listed := metav1.APIGroup{Name: group.name}
		for _, version := range group.versions {
			gv := schema.GroupVersion{Group: group.name, Version: version.name}
			visible.Versions = append(visible.Versions, apidiscoveryv2.APIVersionDiscovery{
				Version: version.name, Resources: version.aggregated, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
			})
			listed.Versions = append(listed.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: version.name})
			built.versions[gv] = version.unaggregated
		}
		listed.PreferredVersion = listed.Versions[0]
		if group.name == "" {
			built.core.items = append(built.core.items, visible)
			continue
		}
		built.named.items = append(built.named.items, visible)
		built.groups[group.name] = listed
		built.order = append(built.order, group.name)
	}
	var size int64
	for _, list := range []*aggregatedList{&built.core, &built.named} {
		encoded, err := json.Marshal(list.items)
		if err != nil {
			return nil, 0, err
		}
		list.tag = fmt.Sprintf("%X", sha512.Sum512(encoded))
		size += 3 * int64(len(encoded)) // in both forms, with pointers
	}
	return built, size, nil
}
