package apiexport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// resourceRequest is a parsed request for a resource.
type resourceRequest struct {
	target   virtual.Request
	info     *request.RequestInfo
	set      *apiSet
	resource *apiResource
}

// newResourceHandler returns the handler of resource requests.
func (w *workspace) newResourceHandler(content http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		c, err := w.parseRequest(req)
		if err != nil {
			w.writeError(rw, req, err)
			return
		}
		req, done := w.watches.track(req, c)
		defer done()
		if c.target.Cluster.IsWildcard() {
			w.serveWildcard(rw, req, c, content)
			return
		}
		w.serveInCluster(rw, req, c, content)
	})
}

// parseRequest resolves the API set and the offer of a request and validates its verb.
func (w *workspace) parseRequest(req *http.Request) (*resourceRequest, error) {
	ctx := req.Context()
	c := &resourceRequest{}
	var ok bool
	if c.target, ok = virtual.From(ctx); !ok {
		return nil, apierrors.NewInternalError(errNoExport)
	}
	if c.info, ok = request.RequestInfoFrom(ctx); !ok {
		return nil, apierrors.NewInternalError(errors.New("no request info in the request"))
	}
	var err error
	if c.set, err = apiSetFor(ctx, w.apis, c.target); err != nil {
		return nil, err
	}
	gr := schema.GroupResource{Group: c.info.APIGroup, Resource: c.info.Resource}
	if c.resource, err = c.set.find(ctx, gr); err != nil {
		return nil, err
	}
	notFoundErr := apierrors.NewGenericServerResponse(http.StatusNotFound, c.info.Verb, gr, c.info.Name, "", 0, true)
	if c.resource == nil {
		return nil, notFoundErr
	}
	verbs, err := w.allowedVerbs(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case len(verbs) == 0:
		return nil, notFoundErr
	case !slices.Contains(verbs, c.info.Verb):
		return nil, apierrors.NewMethodNotSupported(gr, c.info.Verb)
	case c.target.Cluster.IsWildcard() && c.info.Verb != "list" && c.info.Verb != "watch":
		return nil, apierrors.NewBadRequest(`requests to the "*" logical cluster can only list and watch`)
	case c.target.Cluster.IsWildcard() && c.info.Namespace != "":
		return nil, apierrors.NewBadRequest(`a request to the "*" logical cluster cannot name a namespace`)
	}
	return c, nil
}

// allowedVerbs returns the verbs of the requested resource or subresource in the requested version; none if it does not exist.
func (w *workspace) allowedVerbs(ctx context.Context, c *resourceRequest) ([]string, error) {
	candidates := []string(c.resource.verbs)
	switch c.info.Subresource {
	case "":
	case statusSubresource:
		candidates = c.resource.status
	default:
		claim := c.resource.subresources[c.info.Subresource]
		if claim == nil {
			return nil, nil
		}
		if c.resource.definer != nil {
			return w.customVerbs(ctx, c, claim)
		}
		candidates = allVerbs
	}
	if len(c.info.Parts) > 3 {
		return nil, nil
	}
	if c.resource.agnostic && c.resource.schema == nil {
		if verbs := []string{"list", "watch"}; c.info.Subresource == "" && slices.Contains(verbs, c.info.Verb) {
			return verbs, nil // of nothing: no consumer has bound the resource
		}
		return nil, nil
	}
	if c.resource.schema == nil {
		_, documents := w.config.Documents()
		compiled, err := documents.Source().Load(ctx)
		if err != nil {
			return nil, err
		}
		name := c.info.Resource
		if c.info.Subresource != "" {
			name += "/" + c.info.Subresource
		}
		compiledResource, _ := compiled.GetResource(schema.GroupVersion{Group: c.info.APIGroup, Version: c.info.APIVersion}, name)
		return intersection(candidates, compiledResource.Verbs), nil
	}
	for i := range c.resource.schema.Spec.Versions {
		version := &c.resource.schema.Spec.Versions[i]
		if version.Name == c.info.APIVersion && version.Served && (c.info.Subresource == "" || version.Subresources.Status != nil) {
			return candidates, nil
		}
	}
	return nil, nil
}

// customVerbs returns the verbs with which a custom subresource is claimed, if it has the requested version.
func (w *workspace) customVerbs(ctx context.Context, c *resourceRequest, claim *apisv1alpha2.PermissionClaim) ([]string, error) {
	described, err := w.apis.describeSubresources(ctx, c.resource)
	if err != nil || len(c.info.Parts) > 3 {
		return nil, err
	}
	for _, custom := range described {
		for _, version := range custom.Versions {
			if custom.Name == c.info.Subresource && version.Name == c.info.APIVersion {
				return claimedVerbs(claim), nil
			}
		}
	}
	return nil, nil
}

func intersection(a, b []string) []string {
	var common []string
	for _, verb := range a {
		if slices.Contains(b, verb) {
			common = append(common, verb)
		}
	}
	return common
}

// serveWildcard serves a list or watch across all consumers of the shard, from the storage that they share.
func (w *workspace) serveWildcard(rw http.ResponseWriter, req *http.Request, c *resourceRequest, content http.Handler) {
	if c.resource.agnostic {
		w.serveAgnostic(rw, req, c, content)
		return
	}
	if c.resource.virtual && w.config.VirtualStorage != nil {
		w.serveOrEmpty(rw, virtual.InCluster(req), c, http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			w.config.VirtualStorage.ServeAll(rw, req, c.resource.owner, c.resource.GroupResource, w.claimedClusters(c))
		}))
		return
	}
	forwarded, err := c.forward(virtual.InCluster(req))
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	w.serveOrEmpty(rw, forwarded, c, content)
}

// claimedClusters returns a function that returns the logical clusters that allow a request by a claim; nil if the request needs no
// claim.
func (w *workspace) claimedClusters(c *resourceRequest) func(context.Context) (sets.Set[logicalcluster.Name], error) {
	if c.resource.isOwn() {
		return nil
	}
	return func(ctx context.Context) (sets.Set[logicalcluster.Name], error) {
		return w.consumers.listClaimedClusters(ctx, c.set, c.resource, c.info.Verb)
	}
}

// serveInCluster serves a request to the logical cluster of one consumer, as the caller with a warrant for it.
func (w *workspace) serveInCluster(rw http.ResponseWriter, req *http.Request, c *resourceRequest, content http.Handler) {
	caller, ok := request.UserFrom(req.Context())
	if !ok {
		w.writeError(rw, req, apierrors.NewInternalError(errors.New("no user in the request")))
		return
	}
	warrantedUser, err := withWarrant(caller, c.target.Cluster)
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	inClusterReq := virtual.InClusterAs(req, warrantedUser, w.nestedAuthorizer(c.target, caller))
	if rejected := w.rejectUnauthorized(rw, inClusterReq, c); rejected {
		return
	}
	if c.resource.agnostic && c.resource.identity == "" { // a resource of that name is a definition of the consumer's own
		w.serveEmpty(rw, inClusterReq, c)
		return
	}
	if inClusterReq, err = w.restrictToClaim(inClusterReq, c); err == nil {
		inClusterReq, err = c.forward(inClusterReq)
	}
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	w.serveOrEmpty(rw, inClusterReq, c, content)
}

// rejectUnauthorized authorizes the request with the authorizer of the shard as one to the consumer's logical cluster, where
// the warrant allows everything but what is forbidden to all users. It responds and returns true if access is denied.
func (w *workspace) rejectUnauthorized(rw http.ResponseWriter, inClusterReq *http.Request, c *resourceRequest) (rejected bool) {
	attributes, err := endpointfilters.GetAuthorizerAttributes(inClusterReq.Context())
	if err != nil {
		w.writeError(rw, inClusterReq, err)
		return true
	}
	decision, reason, err := w.config.Authorizer.Authorize(inClusterReq.Context(), attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return false
	case err != nil:
		w.writeError(rw, inClusterReq, err)
	default:
		responsewriters.Forbidden(attributes, rw, inClusterReq, reason, w.config.Serializer)
	}
	return true
}

// nestedAuthorizer authorizes what handlers check while they serve a request, such as create for a patch of a missing
// object. Both the virtual workspace and the consumer's logical cluster have to allow it.
func (w *workspace) nestedAuthorizer(target virtual.Request, caller user.Info) authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if !slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) {
			decision, reason, err := w.authorizer.authorize(ctx, target, attributesWithUser{attributes, caller})
			if decision != authorizer.DecisionAllow {
				return authorizer.DecisionDeny, reason, err
			}
		}
		return w.config.Authorizer.Authorize(logicalcluster.With(ctx, target.Cluster), attributes)
	})
}

// attributesWithUser are attributes with the original caller as user.
type attributesWithUser struct {
	authorizer.Attributes
	caller user.Info
}

func (a attributesWithUser) GetUser() user.Info { return a.caller }

// restrictToClaim restricts a request for a claimed resource to the objects that the claim selects.
func (w *workspace) restrictToClaim(inClusterReq *http.Request, c *resourceRequest) (*http.Request, error) {
	if c.resource.isOwn() || c.resource.virtual {
		return inClusterReq, nil
	}
	if named := c.info.Verb == "get" || c.info.Subresource != ""; named {
		visible, err := w.isVisible(inClusterReq.Context(), c)
		if err != nil {
			return nil, err
		}
		if !visible {
			return nil, apierrors.NewNotFound(c.resource.GroupResource, c.info.Name)
		}
	}
	rules, err := w.getSelectorRules(inClusterReq.Context(), c)
	if err != nil {
		return nil, fmt.Errorf("reading the selector of the claim on %s: %w", c.resource.GroupResource, err)
	}
	if rules == nil {
		return inClusterReq, nil
	}
	if err := w.checkReachable(inClusterReq.Context(), c, rules); err != nil {
		return nil, err
	}
	return inClusterReq.WithContext(virtual.WithAdmission(inClusterReq.Context(), rules)), nil
}
