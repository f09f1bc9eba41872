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

// reasonDenied is all that a client is told. The details are in the audit log.
const (
	reasonGranted = "access granted"
	reasonDenied  = "access denied"
)

// errAuthorizationFailed makes the answer 500: ask again.
var errAuthorizationFailed = errors.New("the request cannot be authorized now")

// PolicyAuthorizer tells whether the maximal permission policies of those who export a resource with an identity leave a
// request to the user of its attributes, who acts for an export of home that claims the resource.
type PolicyAuthorizer func(ctx context.Context, home logicalcluster.Name, attributes authorizer.Attributes, identity string) (authorizer.Decision, string, error)

// stepsAuthorizer lets a request pass that all steps allow.
type stepsAuthorizer struct {
	exports   Exports
	consumers consumers
	// rbac is the authorizer of the shard.
	rbac   authorizer.Authorizer
	policy PolicyAuthorizer
}

// accessRequest is a request with what the steps look at.
type accessRequest struct {
	authorizer.Attributes
	set *apiSet
	// cluster is that of a consumer, or the wildcard.
	cluster logicalcluster.Name
}

// stepResult is what a step says.
type stepResult struct {
	allowed bool
	reason  string
	err     error
}

func allow(format string, args ...any) stepResult {
	return stepResult{allowed: true, reason: fmt.Sprintf(format, args...)}
}

func deny(format string, args ...any) stepResult {
	return stepResult{reason: fmt.Sprintf(format, args...)}
}

func failed(err error) stepResult { return stepResult{reason: "failed", err: err} }

// Authorize implements authorizer.Authorizer.
func (a stepsAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	request, ok := virtual.From(ctx)
	if !ok {
		return authorizer.DecisionDeny, reasonDenied, errNoExport
	}
	return a.authorize(ctx, request, attributes)
}

func (a stepsAuthorizer) authorize(ctx context.Context, request virtual.Request, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	set, err := apiSetFor(ctx, a.exports, request)
	if err != nil {
		return a.internalError(ctx, attributes, err)
	}
	access := accessRequest{Attributes: attributes, set: set, cluster: request.Cluster}
	for _, step := range []struct {
		key   string
		check func(context.Context, accessRequest) stepResult
	}{
		{"boundapi", a.checkBoundAPI},                           // does the consumer let the provider do this
		{"content", a.checkContent},                             // may the caller act for the provider
		{"maxpermissionpolicy", a.checkMaximalPermissionPolicy}, // does the owner of a claimed resource leave this to anybody
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

// internalError is for the log: what went wrong is not for a caller whose rights are not known.
func (a stepsAuthorizer) internalError(ctx context.Context, attributes authorizer.Attributes, err error) (authorizer.Decision, string, error) {
	klog.FromContext(ctx).Error(err, "Authorizing a request to the virtual workspace of an export failed", "verb", attributes.GetVerb(), "path", attributes.GetPath())
	return authorizer.DecisionDeny, reasonDenied, errAuthorizationFailed
}

// checkBoundAPI asks the consumer's binding. Requests over all logical clusters see what every one of them lets the export
// see, and documents are about the export alone.
func (a stepsAuthorizer) checkBoundAPI(ctx context.Context, request accessRequest) stepResult {
	if request.cluster.IsWildcard() || !request.IsResourceRequest() {
		return allow("not about one consumer")
	}
	result := a.checkBindings(ctx, request, a.consumers.listCached)
	if result.allowed || result.err != nil {
		return result
	}
	// What a client saw bound may not have come to the watch cache. That is worth a look only for who may act for the
	// provider.
	if able := a.checkContent(ctx, request); !able.allowed {
		return result
	}
	return a.checkBindings(ctx, request, a.consumers.listLatest)
}

func (a stepsAuthorizer) checkBindings(ctx context.Context, request accessRequest, list lister) stepResult {
	bound, err := a.consumers.bindingsTo(ctx, request.set, request.cluster, list)
	if err != nil {
		return failed(err)
	}
	if len(bound) == 0 {
		return deny("the export is not bound in %q", request.cluster)
	}
	found, err := request.set.find(ctx, groupResource(request))
	if err != nil {
		return failed(err)
	}
	if found == nil {
		return deny("the export neither has nor claims %s", groupResource(request))
	}
	last := deny("no binding")
	for _, binding := range bound {
		if last = permits(binding, found, request.GetVerb()); last.allowed {
			break
		}
	}
	return last
}

// checkContent asks whether the caller may act for the provider: do the same on apiexports/content, in the logical cluster of
// the export.
func (a stepsAuthorizer) checkContent(ctx context.Context, request accessRequest) stepResult {
	decision, reason, err := a.rbac.Authorize(authorization.WithElsewhere(logicalcluster.With(ctx, request.set.name.Cluster)), authorizer.AttributesRecord{
		User:            request.GetUser(),
		Verb:            request.GetVerb(),
		APIGroup:        apisv1alpha2.SchemeGroupVersion.Group,
		APIVersion:      apisv1alpha2.SchemeGroupVersion.Version,
		Resource:        "apiexports",
		Subresource:     "content",
		Name:            request.set.name.Name,
		ResourceRequest: true,
	})
	switch {
	case err != nil:
		return failed(err)
	case decision != authorizer.DecisionAllow:
		return deny("apiexports/content of %q in %q: %s", request.set.name.Name, request.set.name.Cluster, reason)
	}
	return allow("apiexports/content: %s", reason)
}

// checkMaximalPermissionPolicy asks whoever exports a claimed resource, where they leave to others but a part of it.
func (a stepsAuthorizer) checkMaximalPermissionPolicy(ctx context.Context, request accessRequest) stepResult {
	if !request.IsResourceRequest() {
		return allow("not a resource")
	}
	found, err := request.set.find(ctx, groupResource(request))
	switch {
	case err != nil:
		return failed(err)
	case found == nil || found.claim == nil || found.identity == "":
		return allow("not a resource of another export")
	}
	decision, reason, err := a.policy(ctx, request.set.name.Cluster, request, found.identity)
	switch {
	case err != nil:
		return failed(err)
	case decision != authorizer.DecisionAllow:
		return deny("an owner of the claimed resource does not permit it: %s", reason)
	}
	return allow("the owners of the claimed resource permit it: %s", reason)
}
