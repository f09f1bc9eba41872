package virtual

import (
	"context"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
	"github.com/atoll-dev/atoll/shardserver/filters"
)

// auditKey is the key of the audit annotation with the virtual workspace and its owner.
const auditKey = "virtual.kcp.io/workspace"

// Reasons for denials that are the same in all virtual workspaces.
const (
	reasonUnresolved    = "Path not resolved to a valid virtual workspace"
	reasonImpersonation = "impersonation is not available in virtual workspaces"
)

// WithRequest resolves URLs below Prefix, stores the Request in the context, and strips the prefix from the path. It runs
// after the resolution of /clusters/, which must not apply to the stripped path, and before the generic handler chain,
// which parses verb and resource from it.
func (r *Registry) WithRequest(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, inCluster := logicalcluster.From(req.Context()); inCluster || !strings.HasPrefix(req.URL.Path, Prefix) {
			handler.ServeHTTP(w, req)
			return
		}
		target := r.resolve(req.URL.Path)
		if filters.IsShardLevel(target.Path) { // never served in virtual workspaces
			target = Request{}
		}
		ctx := context.WithValue(req.Context(), requestKey{}, target)
		if !target.Cluster.Empty() {
			ctx = logicalcluster.With(ctx, target.Cluster)
		}
		if target.workspace != nil {
			// The audit log shows the stripped path, so that the virtual workspace goes into an annotation.
			ctx = audit.WithAuditContext(ctx) // the generic chain reuses it
			audit.AddAuditAnnotation(ctx, auditKey, target.workspace.Name+"/"+strings.Join(target.Owner, "/"))
		}
		scoped := req.Clone(ctx)
		if target.workspace != nil {
			scoped.URL.Path, scoped.URL.RawPath = target.Path, ""
		}
		handler.ServeHTTP(w, scoped)
	})
}

// Authorizer returns the authorizer of the handler chain: it calls the authorizer of the virtual workspace for requests
// to one, and delegate for all others.
func (r *Registry) Authorizer(delegate authorizer.UnconditionalAuthorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(chainAuthorizer{delegate}.Authorize)
}

type chainAuthorizer struct {
	delegate authorizer.UnconditionalAuthorizer
}

func (a chainAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if nested, ok := ctx.Value(inClusterKey{}).(authorizer.UnconditionalAuthorizer); ok {
		return nested.Authorize(ctx, attributes)
	}
	target, ok := ctx.Value(requestKey{}).(Request)
	switch {
	case !ok:
		return a.delegate.Authorize(ctx, attributes)
	case slices.Contains(attributes.GetUser().GetGroups(), user.SystemPrivilegedGroup):
		return authorizer.DecisionAllow, "", nil
	case target.workspace == nil:
		return authorizer.DecisionDeny, reasonUnresolved, nil
	case strings.HasPrefix(attributes.GetVerb(), "impersonate"):
		// Access to a virtual workspace does not include impersonation in it.
		return authorizer.DecisionDeny, reasonImpersonation, nil
	}
	return target.workspace.Authorizer.Authorize(ctx, attributes)
}

// WithServing routes requests to the handlers of their virtual workspaces. It is the outermost handler after
// authorization; content serves logical clusters.
func (r *Registry) WithServing(content http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	handlers := map[string]http.Handler{}
	for name, w := range r.workspaces {
		handlers[name] = w.Handler(content)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		target, ok := req.Context().Value(requestKey{}).(Request)
		switch {
		case !ok:
			content.ServeHTTP(w, req)
		case target.workspace == nil || hasIdentity(req) && !target.workspace.AllowsIdentities:
			err := apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(req.Method), schema.GroupResource{}, "", "", 0, true)
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{}, w, req)
		default:
			handlers[target.workspace.Name].ServeHTTP(w, req)
		}
	})
}

// hasIdentity reports whether a request names its resource "<resource>:<identity>". Most virtual workspaces match
// resources by name only and return 404 for such requests.
func hasIdentity(req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	return ok && strings.Contains(info.Resource, ":")
}

type inClusterKey struct{}

// InClusterAs returns the request as one to its logical cluster by user u, for the content handler of a Workspace. The
// caller does not impersonate u: the permissions of u in other logical clusters count, too.
// allowed authorizes what handlers check while they serve the request, such as create for an update of a missing object;
// if it is nil, the authorizer of the shard does.
func InClusterAs(req *http.Request, u user.Info, allowed authorizer.UnconditionalAuthorizer) *http.Request {
	ctx := requester.Without(context.WithValue(req.Context(), inClusterKey{}, allowed))
	audit.LogImpersonatedUser(ctx, u, "")
	return InCluster(req.WithContext(request.WithUser(ctx, u)))
}

// InCluster returns the request as one to its logical cluster by the same user.
func InCluster(req *http.Request) *http.Request {
	cloned := req.Clone(context.WithValue(req.Context(), requestKey{}, nil))
	cloned.Header.Del("Authorization")
	for name := range cloned.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			delete(cloned.Header, name)
		}
	}
	return cloned
}
