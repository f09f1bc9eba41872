package apiexport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// resourceRequest is a parsed request for a resource.
type resourceRequest struct {
	target  virtual.Request
	info    *request.RequestInfo
	set     *apiSet
	offered *offer
}

// resources returns the handler of resource requests.
func (w *workspace) resources(content http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		c, err := w.parseRequest(req)
		if err != nil {
			w.fail(rw, req, err)
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
	if c.set, err = apiSetFor(ctx, w.config.Exports, c.target); err != nil {
		return nil, err
	}
	gr := schema.GroupResource{Group: c.info.APIGroup, Resource: c.info.Resource}
	if c.offered, err = c.set.find(ctx, gr); err != nil {
		return nil, err
	}
	missing := apierrors.NewGenericServerResponse(http.StatusNotFound, c.info.Verb, gr, c.info.Name, "", 0, true)
	if c.offered == nil {
		return nil, missing
	}
	verbs, err := w.verbs(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case len(verbs) == 0:
		return nil, missing
	case !slices.Contains(verbs, c.info.Verb):
		return nil, apierrors.NewMethodNotSupported(gr, c.info.Verb)
	case c.target.Cluster.IsWildcard() && c.info.Verb != "list" && c.info.Verb != "watch":
		return nil, apierrors.NewBadRequest(`requests to the "*" logical cluster can only list and watch`)
	case c.target.Cluster.IsWildcard() && c.info.Namespace != "":
		return nil, apierrors.NewBadRequest(`a request to the "*" logical cluster cannot name a namespace`)
	}
	return c, nil
}

// verbs returns the verbs of the requested resource or subresource in the requested version; none if it does not exist.
func (w *workspace) verbs(ctx context.Context, c *resourceRequest) ([]string, error) {
	if c.info.Subresource != "" && c.info.Subresource != "status" || len(c.info.Parts) > 3 {
		return nil, nil
	}
	offered := []string(c.offered.verbs)
	if c.info.Subresource != "" {
		offered = c.offered.status
	}
	if c.offered.schema == nil {
		_, documents := w.config.Documents()
		compiled, err := documents.Source().Read(ctx)
		if err != nil {
			return nil, err
		}
		name := c.info.Resource
		if c.info.Subresource != "" {
			name += "/" + c.info.Subresource
		}
		listed, _ := compiled.Listed(schema.GroupVersion{Group: c.info.APIGroup, Version: c.info.APIVersion}, name)
		return intersection(offered, listed.Verbs), nil
	}
	for i := range c.offered.schema.Spec.Versions {
		version := &c.offered.schema.Spec.Versions[i]
		if version.Name == c.info.APIVersion && version.Served && (c.info.Subresource == "" || version.Subresources.Status != nil) {
			return offered, nil
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
	forwarded, err := c.forward(virtual.InCluster(req))
	if err != nil {
		w.fail(rw, req, err)
		return
	}
	w.serveOrEmpty(rw, forwarded, c, content)
}

// serveInCluster serves a request to the logical cluster of one consumer, as the caller with a warrant for it.
func (w *workspace) serveInCluster(rw http.ResponseWriter, req *http.Request, c *resourceRequest, content http.Handler) {
	caller, ok := request.UserFrom(req.Context())
	if !ok {
		w.fail(rw, req, apierrors.NewInternalError(errors.New("no user in the request")))
		return
	}
	acting, err := withWarrant(caller, c.target.Cluster)
	if err != nil {
		w.fail(rw, req, err)
		return
	}
	inside := virtual.InClusterAs(req, acting, w.nestedAuthorizer(c.target, caller))
	if refused := w.refuseInCluster(rw, inside, c); refused {
		return
	}
	if inside, err = w.restrictToClaim(inside, c); err == nil {
		inside, err = c.forward(inside)
	}
	if err != nil {
		w.fail(rw, req, err)
		return
	}
	w.serveOrEmpty(rw, inside, c, content)
}

// refuseInCluster authorizes the request with the authorizer of the shard as one to the consumer's logical cluster, where
// the warrant allows everything but what is forbidden to all users. It responds and returns true if access is denied.
func (w *workspace) refuseInCluster(rw http.ResponseWriter, inside *http.Request, c *resourceRequest) (refused bool) {
	attributes, err := endpointfilters.GetAuthorizerAttributes(inside.Context())
	if err != nil {
		w.fail(rw, inside, err)
		return true
	}
	decision, reason, err := w.config.Authorizer.Authorize(inside.Context(), attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return false
	case err != nil:
		w.fail(rw, inside, err)
	default:
		responsewriters.Forbidden(attributes, rw, inside, reason, w.config.Serializer)
	}
	return true
}

// nestedAuthorizer authorizes what handlers check while they serve a request, such as create for a patch of a missing
// object. Both the virtual workspace and the consumer's logical cluster have to allow it.
func (w *workspace) nestedAuthorizer(target virtual.Request, caller user.Info) authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if !slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) {
			decision, reason, err := w.authorizer.authorize(ctx, target, attributesAs{attributes, caller})
			if decision != authorizer.DecisionAllow {
				return authorizer.DecisionDeny, reason, err
			}
		}
		return w.config.Authorizer.Authorize(logicalcluster.With(ctx, target.Cluster), attributes)
	})
}

// attributesAs are attributes with the original caller as user.
type attributesAs struct {
	authorizer.Attributes
	caller user.Info
}

func (a attributesAs) GetUser() user.Info { return a.caller }

// restrictToClaim restricts a request for a claimed resource to the objects that the claim selects.
func (w *workspace) restrictToClaim(inside *http.Request, c *resourceRequest) (*http.Request, error) {
	if c.offered.own() {
		return inside, nil
	}
	if named := c.info.Verb == "get" || c.info.Subresource != ""; named {
		seen, err := w.isVisible(inside.Context(), c)
		if err != nil {
			return nil, err
		}
		if !seen {
			return nil, apierrors.NewNotFound(c.offered.GroupResource, c.info.Name)
		}
	}
	rules, err := w.selectorRules(inside.Context(), c)
	if err != nil {
		return nil, fmt.Errorf("reading the selector of the claim on %s: %w", c.offered.GroupResource, err)
	}
	if rules == nil {
		return inside, nil
	}
	if err := w.checkReachable(inside.Context(), c, rules); err != nil {
		return nil, err
	}
	return inside.WithContext(virtual.WithAdmission(inside.Context(), rules)), nil
}
