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

// auditKey is the annotation of audit events that names the virtual workspace and its owner.
const auditKey = "virtual.kcp.io/workspace"

// The answers to who asks for more than a virtual workspace is.
const (
	reasonUnresolved    = "Path not resolved to a valid virtual workspace"
	reasonImpersonation = "impersonation is not available in virtual workspaces"
)

// WithRequest finds out what a URL below /services/ addresses, and leaves the path behind it for the chain. It belongs
// behind the resolution of /clusters/, so that nothing in the path is taken for a logical cluster a second time, and in
// front of the stock chain, which has to see the verb and the resource.
func (s *Registry) WithRequest(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, inCluster := logicalcluster.From(req.Context()); inCluster || !strings.HasPrefix(req.URL.Path, Prefix) {
			handler.ServeHTTP(w, req)
			return
		}
		target := s.resolve(req.URL.Path)
		if filters.IsShardLevel(target.Path) { // no view shows the whole process, whatever its owner may do in it
			target = Request{}
		}
		ctx := context.WithValue(req.Context(), requestKey{}, target)
		if !target.Cluster.Empty() {
			ctx = logicalcluster.With(ctx, target.Cluster)
		}
		if target.workspace != nil {
			// The path that the audit log shows is that behind the view.
			ctx = audit.WithAuditContext(ctx) // the stock chain goes on with it
			audit.AddAuditAnnotation(ctx, auditKey, target.workspace.Name+"/"+strings.Join(target.Owner, "/"))
		}
		scoped := req.Clone(ctx)
		if target.workspace != nil {
			scoped.URL.Path, scoped.URL.RawPath = target.Path, ""
		}
		handler.ServeHTTP(w, scoped)
	})
}

// Authorizer decides requests to virtual workspaces as these want it, and all others as delegate does. It is for the
// handler chain; questions that come up while a request is served go to delegate itself.
func (s *Registry) Authorizer(delegate authorizer.Authorizer) authorizer.Authorizer {
	return chainAuthorizer{delegate}
}

type chainAuthorizer struct{ authorizer.Authorizer }

func (a chainAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if inside, ok := ctx.Value(inClusterKey{}).(authorizer.Authorizer); ok {
		return inside.Authorize(ctx, attributes)
	}
	target, ok := ctx.Value(requestKey{}).(Request)
	switch {
	case !ok:
		return a.Authorizer.Authorize(ctx, attributes)
	case slices.Contains(attributes.GetUser().GetGroups(), user.SystemPrivilegedGroup):
		return authorizer.DecisionAllow, "", nil
	case target.workspace == nil:
		return authorizer.DecisionDeny, reasonUnresolved, nil
	case strings.HasPrefix(attributes.GetVerb(), "impersonate"):
		// The permission to use a view is no permission to become somebody in it.
		return authorizer.DecisionDeny, reasonImpersonation, nil
	}
	return target.workspace.Authorizer.Authorize(ctx, attributes)
}

// WithServing hands requests to their virtual workspaces. It is the outermost filter below authorization; content is
// everything further in.
func (s *Registry) WithServing(content http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	// A virtual workspace changes who the user is. That is no impersonation: nobody stands behind the new user.
	inside := requester.With(content)
	handlers := map[string]http.Handler{}
	for name, w := range s.byName {
		handlers[name] = w.Handler(inside)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		target, ok := req.Context().Value(requestKey{}).(Request)
		switch {
		case !ok:
			content.ServeHTTP(w, req)
		case target.workspace == nil || namesIdentity(req) && !target.workspace.AllowsIdentities:
			err := apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(req.Method), schema.GroupResource{}, "", "", 0, true)
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{}, w, req)
		default:
			handlers[target.workspace.Name].ServeHTTP(w, req)
		}
	})
}

// namesIdentity tells whether a request names its resource "<resource>:<identity>". Virtual workspaces decide by the plain
// name, so it is none of their names.
func namesIdentity(req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	return ok && strings.Contains(info.Resource, ":")
}

type inClusterKey struct{}

// InClusterAs returns the request as one to its logical cluster itself, for the content handler of a Workspace. u is who
// acts there, and allowed decides what else the handlers ask permission for while they serve the request (an update
// that turns out to be a creation); nil leaves that to the shard's own authorizer.
func InClusterAs(req *http.Request, u user.Info, allowed authorizer.Authorizer) *http.Request {
	ctx := context.WithValue(req.Context(), inClusterKey{}, allowed)
	audit.LogImpersonatedUser(ctx, u, "")
	return InCluster(req.WithContext(request.WithUser(ctx, u)))
}

// InCluster is InCluster with the user that the request has: for what the virtual workspace answers for itself.
func InCluster(req *http.Request) *http.Request {
	inside := req.Clone(context.WithValue(req.Context(), requestKey{}, nil))
	inside.Header.Del("Authorization")
	for name := range inside.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			delete(inside.Header, name)
		}
	}
	return inside
}
