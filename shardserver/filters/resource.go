package filters

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// WithResourceRules is the innermost filter, behind authorization: it keeps wildcard requests to list and watch,
// serves "<resource>:<identity>", and hides resources where they do not exist.
func WithResourceRules(handler http.Handler, resources *storage.Registry, identities map[schema.GroupResource]string, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest {
			handler.ServeHTTP(w, req)
			return
		}
		cluster, hasCluster := logicalcluster.From(req.Context())
		if !hasCluster {
			respond(w, req, serializer, apierrors.NewBadRequest("the request names no logical cluster: use /clusters/<name>"+info.Path))
			return
		}
		if cluster.IsWildcard() && info.Verb != "list" && info.Verb != "watch" {
			respond(w, req, serializer, notOverAllClusters(info))
			return
		}
		if cluster.IsWildcard() && info.Namespace != "" {
			respond(w, req, serializer, apierrors.NewBadRequest(`a request to the "*" logical cluster cannot name a namespace`))
			return
		}
		var err error
		if req, info, err = withoutIdentity(req, info, identities); err != nil {
			respond(w, req, serializer, err)
			return
		}
		resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		if !resources.Shows(req.Context(), resource) && !isCustom(req, resources, resource) {
			respond(w, req, serializer, apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, resource, info.Name, "", 0, true))
			return
		}
		handler.ServeHTTP(w, req)
	})
}

// isCustom tells whether a definition of the request's logical cluster takes the place of a resource that is compiled in
// and not shown there.
func isCustom(req *http.Request, resources *storage.Registry, resource schema.GroupResource) bool {
	custom, err := resources.For(req.Context(), resource)
	return err == nil && custom != nil
}

func notOverAllClusters(info *request.RequestInfo) error {
	err := apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
	err.ErrStatus.Message = fmt.Sprintf(`%s is not supported in the "*" logical cluster: only list and watch are`, info.Verb)
	return err
}

// withoutIdentity removes the identity from "<resource>:<identity>" in the path and the request info, after
// checking that it is the one whose objects this shard stores under that resource.
func withoutIdentity(req *http.Request, info *request.RequestInfo, identities map[schema.GroupResource]string) (*http.Request, *request.RequestInfo, error) {
	resource, identity, ok := strings.Cut(info.Resource, ":")
	if !ok {
		return req, info, nil
	}
	if identity == "" {
		return req, info, apierrors.NewInternalError(fmt.Errorf("resource %q: the identity behind the colon is empty", info.Resource))
	}
	gr := schema.GroupResource{Group: info.APIGroup, Resource: resource}
	if identities[gr] != identity {
		return req, info, apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, gr, info.Name, "", 0, true)
	}
	stripped := *info
	stripped.Resource = resource
	stripped.Parts = append([]string{resource}, info.Parts[min(1, len(info.Parts)):]...)
	stripped.Path = strings.Replace(info.Path, "/"+info.Resource, "/"+resource, 1)
	clone := req.Clone(request.WithRequestInfo(req.Context(), &stripped))
	clone.URL.Path = strings.Replace(req.URL.Path, "/"+info.Resource, "/"+resource, 1)
	clone.URL.RawPath = ""
	return clone, &stripped, nil
}
