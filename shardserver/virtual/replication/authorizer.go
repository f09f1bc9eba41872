package replication

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// auditKey is the prefix of the audit annotations with the decision.
const auditKey = "virtual.replication.content.authorization.kcp.io"

// Reasons returned to clients. Details are in the audit log.
const (
	reasonGranted = "access granted"
	reasonDenied  = "access denied"
)

var errAuthorizationFailed = errors.New("the request cannot be authorized now")

// contentAuthorizer allows users with the same verb on apiexports/content of the export to read resources that the
// consumer has bound.
type contentAuthorizer struct{ *Workspace }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a contentAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	reason, err := a.denialReason(ctx, attributes)
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to authorize a request for cached resources", "verb", attributes.GetVerb(), "path", attributes.GetPath())
		return authorizer.DecisionDeny, reasonDenied, errAuthorizationFailed
	case reason != "":
		audit.AddAuditAnnotations(ctx, auditKey+"/decision", "Denied", auditKey+"/reason", reason)
		return authorizer.DecisionDeny, reasonDenied, nil
	}
	audit.AddAuditAnnotations(ctx, auditKey+"/decision", "Allowed", auditKey+"/reason", "")
	return authorizer.DecisionAllow, reasonGranted, nil
}

// denialReason returns why a request is denied; empty if it is allowed.
func (a contentAuthorizer) denialReason(ctx context.Context, attributes authorizer.Attributes) (string, error) {
	if !isRead(attributes.GetVerb()) {
		return "everything here is read-only", nil
	}
	target, exposed, err := a.findForRequest(ctx)
	if err != nil {
		return "", err
	}
	if exposed == nil {
		return "the slice does not exist, or exposes no resource", nil
	}
	allowed, reason, err := a.authorizeContent(ctx, attributes, exposed)
	if err != nil || !allowed {
		return "apiexports/content: " + reason, err
	}
	if target.Cluster.IsWildcard() || !attributes.IsResourceRequest() {
		return "", nil // the handler rejects wildcard requests; non-resource requests concern no consumer
	}
	_, bound, err := a.getBinding(ctx, target.Cluster, exposed)
	if err == nil && !bound {
		return "the resource is not bound in " + target.Cluster.String(), nil
	}
	return "", err
}

// authorizeContent checks that the caller has the same verb on apiexports/content of the export.
func (a contentAuthorizer) authorizeContent(ctx context.Context, attributes authorizer.Attributes, exposed *exposedResource) (bool, string, error) {
	decision, reason, err := a.config.Authorizer.Authorize(authorization.WithRemote(logicalcluster.With(ctx, logicalcluster.Of(exposed.Export))), authorizer.AttributesRecord{
		User:            attributes.GetUser(),
		Verb:            attributes.GetVerb(),
		APIGroup:        apisv1alpha2.SchemeGroupVersion.Group,
		APIVersion:      apisv1alpha2.SchemeGroupVersion.Version,
		Resource:        "apiexports",
		Subresource:     "content",
		Name:            exposed.Export.Name,
		ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, reason, err
}
