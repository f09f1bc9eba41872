package lifecycle

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// typeAuthorizer allows users with the verb initialize (or terminate) on the workspace type, in the logical cluster of the
// type, to which they need access. Verb and resource of the request do not matter.
type typeAuthorizer struct {
	kind     *ownerKind
	delegate authorizer.UnconditionalAuthorizer
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a typeAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	owner, err := ownerFrom(ctx)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	cluster, name, ok := parseWorkspaceType(owner)
	if !ok {
		return authorizer.DecisionDeny, fmt.Sprintf("%q is no %s of a workspace type", owner, a.kind.noun), nil
	}
	decision, reason, err := a.delegate.Authorize(authorization.WithRemote(logicalcluster.With(ctx, cluster)), authorizer.AttributesRecord{
		User:            attributes.GetUser(),
		Verb:            a.kind.verb,
		APIGroup:        tenancyv1alpha1.SchemeGroupVersion.Group,
		APIVersion:      tenancyv1alpha1.SchemeGroupVersion.Version,
		Resource:        "workspacetypes",
		Name:            name,
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionNoOpinion {
		decision = authorizer.DecisionDeny // the last authorizer
	}
	return decision, reason, err
}
