package filters

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// WithResourceRules is the innermost filter, after authorization: it restricts wildcard requests to list and watch, and
// parses "<resource>:<identity>". A compiled-in resource that is stored with that identity is served as such; for other
// resources the identity is put into the context for the handlers.
func WithResourceRules(handler http.Handler, resources *storage.Registry, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest {
			handler.ServeHTTP(w, req)
			return
		}
		cluster, hasCluster := logicalcluster.From(req.Context())
		if !hasCluster {
			writeError(w, req, serializer, apierrors.NewBadRequest("the request names no logical cluster: use /clusters/<name>"+info.Path))
			return
		}
		if cluster.IsWildcard() && info.Verb != "list" && info.Verb != "watch" {
			writeError(w, req, serializer, newWildcardNotSupported(info))
			return
		}
		if cluster.IsWildcard() && info.Namespace != "" {
			writeError(w, req, serializer, apierrors.NewBadRequest(`a request to the "*" logical cluster cannot name a namespace`))
			return
		}
		if cluster.IsWildcard() {
			if err := requireIdentity(req, info, resources); err != nil {
				writeError(w, req, serializer, err)
				return
			}
		}
		req, err := stripIdentity(req, info, resources)
		if err != nil {
			writeError(w, req, serializer, err)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

func newWildcardNotSupported(info *request.RequestInfo) error {
	err := apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
	err.ErrStatus.Message = fmt.Sprintf(`%s is not supported in the "*" logical cluster: only list and watch are`, info.Verb)
	return err
}

// stripIdentity removes the identity from "<resource>:<identity>" in the path and the request info, and puts it into
// the context unless it is that of a compiled-in resource.
func stripIdentity(req *http.Request, info *request.RequestInfo, resources *storage.Registry) (*http.Request, error) {
	resource, identity, ok := strings.Cut(info.Resource, ":")
	if !ok {
		return req, nil
	}
	if resource == "" {
		return req, apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, schema.GroupResource{Group: info.APIGroup}, "", "", 0, true)
	}
	if identity == "" {
		return req, apierrors.NewInternalError(fmt.Errorf("resource %q: the identity behind the colon is empty", info.Resource))
	}
	stripped := *info
	stripped.Resource = resource
	stripped.Parts = append([]string{resource}, info.Parts[min(1, len(info.Parts)):]...)
	stripped.Path = strings.Replace(info.Path, "/"+info.Resource, "/"+resource, 1)
	ctx := request.WithRequestInfo(req.Context(), &stripped)
	if gr := (schema.GroupResource{Group: info.APIGroup, Resource: resource}); !isBuiltIn(ctx, resources, gr, identity) {
		ctx = bindings.WithIdentity(ctx, identity)
	}
	clone := req.Clone(ctx)
	clone.URL.Path = strings.Replace(req.URL.Path, "/"+info.Resource, "/"+resource, 1)
	clone.URL.RawPath = ""
	return clone, nil
}

// isBuiltIn reports whether the context's logical cluster serves a compiled-in resource that is stored with an
// identity.
func isBuiltIn(ctx context.Context, resources *storage.Registry, gr schema.GroupResource, identity string) bool {
	builtin, err := resources.Get(gr)
	return err == nil && builtin.Identity() == identity && resources.IsVisible(ctx, gr)
}
