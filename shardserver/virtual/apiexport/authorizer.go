package apiexport

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// Reasons returned to clients. Details are in the audit log.
const (
	reasonGranted = "access granted"
	reasonDenied  = "access denied"
)

// errAuthorizationFailed results in a response with status 500.
var errAuthorizationFailed = errors.New("the request cannot be authorized now")

// PolicyAuthorizer authorizes a request for a claimed resource by the maximal permission policies of the exports with its
// identity. home is the logical cluster of the claiming export.
type PolicyAuthorizer func(ctx context.Context, home logicalcluster.Name, attributes authorizer.Attributes, identity string) (authorizer.Decision, string, error)

// stepsAuthorizer allows a request if all steps allow it.
type stepsAuthorizer struct {
	apiSource
	consumers bindingLister
	// rbac is the authorizer of the shard.
	rbac   authorizer.UnconditionalAuthorizer
	policy PolicyAuthorizer
}

// accessRequest is the input of the steps.
type accessRequest struct {
	authorizer.Attributes
	set *apiSet
	// cluster is the logical cluster of a consumer, or the wildcard.
	cluster logicalcluster.Name
}

// stepResult is the decision of a step.
type stepResult struct {
	allowed bool
	reason  string
	err     error
}

func newAllowed(format string, args ...any) stepResult {
	return stepResult{allowed: true, reason: fmt.Sprintf(format, args...)}
}

func newDenied(format string, args ...any) stepResult {
	return stepResult{reason: fmt.Sprintf(format, args...)}
}

func newFailed(err error) stepResult { return stepResult{reason: "failed", err: err} }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a stepsAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	request, ok := virtual.From(ctx)
	if !ok {
		return authorizer.DecisionDeny, reasonDenied, errNoExport
	}
	return a.authorize(ctx, request, attributes)
}

func (a stepsAuthorizer) authorize(ctx context.Context, request virtual.Request, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	set, err := apiSetFor(ctx, a.apiSource, request)
	if err != nil {
		return a.internalError(ctx, attributes, err)
	}
	access := accessRequest{Attributes: attributes, set: set, cluster: request.Cluster}
	for _, step := range []struct {
		key   string
		check func(context.Context, accessRequest) stepResult
	}{
		{"boundapi", a.checkBoundAPI},                           // the binding of the consumer allows the request
		{"content", a.checkContent},                             // the caller may access the content of the export
		{"maxpermissionpolicy", a.checkMaximalPermissionPolicy}, // the exports of a claimed resource allow the request
	} {
		result := step.check(ctx, access)
		key := "virtual.apiexport." + step.key + ".authorization.kcp.io"
		audit.AddAuditAnnotations(ctx, key+"/decision", decisions[result.allowed], key+"/reason", result.reason)
		switch {
		case result.err != nil:
			return a.internalError(ctx, attributes, result.err)
		case !result.allowed:
			return authorizer.DecisionDeny, reasonDenied, nil
		}
	}
	return authorizer.DecisionAllow, reasonGranted, nil
}

var decisions = map[bool]string{true: "Allowed", false: "Denied"}

// internalError logs an error and returns a generic one, because the caller is not authorized to read details.
func (a stepsAuthorizer) internalError(ctx context.Context, attributes authorizer.Attributes, err error) (authorizer.Decision, string, error) {
	klog.FromContext(ctx).Error(err, "Failed to authorize a request to the virtual workspace of an export", "verb", attributes.GetVerb(), "path", attributes.GetPath())
	return authorizer.DecisionDeny, reasonDenied, errAuthorizationFailed
}

// checkBoundAPI checks the binding of the consumer. Wildcard requests are filtered by label instead, and non-resource
// requests concern the export alone.
func (a stepsAuthorizer) checkBoundAPI(ctx context.Context, request accessRequest) stepResult {
	if request.cluster.IsWildcard() || !request.IsResourceRequest() {
		return newAllowed("not about one consumer")
	}
	result := a.checkBindings(ctx, request, a.consumers.listCached)
	if result.allowed || result.err != nil {
		return result
	}
	// The watch cache may lag behind a binding that the client has seen. A consistent read follows only for callers that
	// may access the content of the export.
	if contentResult := a.checkContent(ctx, request); !contentResult.allowed {
		return result
	}
	return a.checkBindings(ctx, request, a.consumers.listLatest)
}

func (a stepsAuthorizer) checkBindings(ctx context.Context, request accessRequest, list lister) stepResult {
	bound, err := a.consumers.listByExport(ctx, request.set, request.cluster, list)
	if err != nil {
		return newFailed(err)
	}
	if len(bound) == 0 {
		return newDenied("the export is not bound in %q", request.cluster)
	}
	found, err := request.set.find(ctx, groupResource(request))
	if err != nil {
		return newFailed(err)
	}
	if found == nil {
		return newDenied("the export neither has nor claims %s", groupResource(request))
	}
	last := newDenied("no binding")
	for _, binding := range bound {
		if last = checkBinding(binding, found, request.GetVerb(), request.GetSubresource()); last.allowed {
			break
		}
	}
	return last
}

// checkContent checks that the caller has the permission on the export, in its logical cluster: the same verb on
// apiexports/content, or the verb of the view on apiexports.
func (a stepsAuthorizer) checkContent(ctx context.Context, request accessRequest) stepResult {
	verb, subresource, permission := request.GetVerb(), "content", "apiexports/content"
	if a.view != nil {
		verb, subresource, permission = a.view.Verb(), "", a.view.Verb()
	}
	decision, reason, err := a.rbac.Authorize(authorization.WithRemote(logicalcluster.With(ctx, request.set.name.Cluster)), authorizer.AttributesRecord{
		User:            request.GetUser(),
		Verb:            verb,
		APIGroup:        apisv1alpha2.SchemeGroupVersion.Group,
		APIVersion:      apisv1alpha2.SchemeGroupVersion.Version,
		Resource:        "apiexports",
		Subresource:     subresource,
		Name:            request.set.name.Name,
		ResourceRequest: true,
	})
	switch {
	case err != nil:
		return newFailed(err)
	case decision != authorizer.DecisionAllow:
		return newDenied("%s of %q in %q: %s", permission, request.set.name.Name, request.set.name.Cluster, reason)
	}
	return newAllowed("%s: %s", permission, reason)
}

// checkMaximalPermissionPolicy checks the maximal permission policies of the exports that own a claimed resource.
func (a stepsAuthorizer) checkMaximalPermissionPolicy(ctx context.Context, request accessRequest) stepResult {
	if !request.IsResourceRequest() {
		return newAllowed("not a resource")
	}
	found, err := request.set.find(ctx, groupResource(request))
	switch {
	case err != nil:
		return newFailed(err)
	case found == nil || found.claim == nil || found.identity == "" && !found.agnostic:
		return newAllowed("not a resource of another export")
	}
	identities := []string{found.identity}
	if found.agnostic {
		identities = found.identities
	}
	if len(identities) > maxIdentities {
		return newAllowed("refused as a bad request: too many owners")
	}
	result := newDenied("no consumer has bound the claimed resource")
	for _, identity := range identities {
		decision, reason, err := a.policy(ctx, request.set.name.Cluster, request, identity)
		switch {
		case err != nil:
			return newFailed(err)
		case decision != authorizer.DecisionAllow:
			return newDenied("an owner of the claimed resource does not permit it: %s", reason)
		}
		result = newAllowed("the owners of the claimed resource permit it: %s", reason)
	}
	return result
}
