package filters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// shards is the one resource that not every logical cluster has.
var shards = corev1alpha1.Resource("shards")

// served tells whether a request's logical cluster has a resource. Requests over all clusters see what any has.
func served(resource schema.GroupResource, req *http.Request) bool {
	cluster, _ := logicalcluster.From(req.Context())
	return resource != shards || cluster == logicalcluster.Root || cluster == logicalcluster.Shard || cluster.IsWildcard()
}

// NewDiscovery returns the manager of aggregated discovery. It keeps two documents: one for the logical clusters that
// have every resource, one for all others. Both are made when APIs are installed, none per cluster.
func NewDiscovery() aggregated.ResourceManager {
	return &placed{ResourceManager: aggregated.NewResourceManager("apis"), elsewhere: aggregated.NewResourceManager("apis")}
}

type placed struct {
	aggregated.ResourceManager
	elsewhere aggregated.ResourceManager
}

func (p *placed) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if served(shards, req) {
		p.ResourceManager.ServeHTTP(w, req)
		return
	}
	p.elsewhere.ServeHTTP(w, req)
}

func (p *placed) AddGroupVersion(group string, version apidiscoveryv2.APIVersionDiscovery) {
	p.ResourceManager.AddGroupVersion(group, version)
	p.elsewhere.AddGroupVersion(group, withoutShards(group, version))
}

func (p *placed) SetGroupVersionPriority(version metav1.GroupVersion, group, priority int) {
	p.ResourceManager.SetGroupVersionPriority(version, group, priority)
	p.elsewhere.SetGroupVersionPriority(version, group, priority)
}

func (p *placed) RemoveGroup(group string) {
	p.ResourceManager.RemoveGroup(group)
	p.elsewhere.RemoveGroup(group)
}

func (p *placed) RemoveGroupVersion(version metav1.GroupVersion) {
	p.ResourceManager.RemoveGroupVersion(version)
	p.elsewhere.RemoveGroupVersion(version)
}

func (p *placed) SetGroups(groups []apidiscoveryv2.APIGroupDiscovery) {
	p.ResourceManager.SetGroups(groups)
	reduced := make([]apidiscoveryv2.APIGroupDiscovery, 0, len(groups))
	for _, group := range groups {
		copied := *group.DeepCopy()
		for i, version := range copied.Versions {
			copied.Versions[i] = withoutShards(group.Name, version)
		}
		reduced = append(reduced, copied)
	}
	p.elsewhere.SetGroups(reduced)
}

func (p *placed) WithSource(source aggregated.Source) aggregated.ResourceManager {
	return &placed{ResourceManager: p.ResourceManager.WithSource(source), elsewhere: p.elsewhere.WithSource(source)}
}

func (p *placed) AddInvalidationCallback(callback func()) {
	p.ResourceManager.AddInvalidationCallback(callback)
	p.elsewhere.AddInvalidationCallback(callback)
}

func withoutShards(group string, version apidiscoveryv2.APIVersionDiscovery) apidiscoveryv2.APIVersionDiscovery {
	if group == shards.Group {
		version.Resources = slices.DeleteFunc(slices.Clone(version.Resources), func(resource apidiscoveryv2.APIResourceDiscovery) bool {
			return resource.Resource == shards.Resource
		})
	}
	return version
}

// WithDiscoveryRules makes documents about the API tell of the request's logical cluster alone: the list of a
// version's resources (the unaggregated form of discovery), and OpenAPI v3, which has no meaning outside of one.
func WithDiscoveryRules(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	versionOfShards := "/apis/" + corev1alpha1.SchemeGroupVersion.String()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path := strings.TrimSuffix(req.URL.Path, "/")
		_, hasCluster := logicalcluster.From(req.Context())
		switch {
		case !hasCluster && (path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/")):
			respond(w, req, serializer, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true))
		case path == versionOfShards && req.Method == http.MethodGet && !served(shards, req):
			serveWithoutShards(w, req, handler, serializer)
		default:
			handler.ServeHTTP(w, req)
		}
	})
}

// serveWithoutShards asks the stock handler for its list in a form that can be read here, and writes what is left of
// it in the form that the client wants.
func serveWithoutShards(w http.ResponseWriter, req *http.Request, handler http.Handler, serializer runtime.NegotiatedSerializer) {
	asked := req.Clone(req.Context())
	asked.Header.Set("Accept", runtime.ContentTypeJSON)
	asked.Header.Del("Accept-Encoding")
	answer := &recorded{header: http.Header{}, status: http.StatusOK}
	handler.ServeHTTP(answer, asked)
	var list metav1.APIResourceList
	if err := json.Unmarshal(answer.body.Bytes(), &list); err != nil || answer.status != http.StatusOK {
		respond(w, req, serializer, apierrors.NewInternalError(fmt.Errorf("listing the resources of %s: status %d: %w", req.URL.Path, answer.status, err)))
		return
	}
	list.TypeMeta = metav1.TypeMeta{}
	list.APIResources = slices.DeleteFunc(list.APIResources, func(resource metav1.APIResource) bool {
		name, _, _ := strings.Cut(resource.Name, "/")
		return name == shards.Resource
	})
	responsewriters.WriteObjectNegotiated(serializer, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, req, http.StatusOK, &list, false)
}

// recorded keeps an answer instead of sending it.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header            { return r.header }
func (r *recorded) WriteHeader(status int)         { r.status = status }
func (r *recorded) Write(part []byte) (int, error) { return r.body.Write(part) }
