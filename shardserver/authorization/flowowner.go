package authorization

import (
	"context"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
)

// FlowOwner returns the flow owner of a request to the context's logical cluster: the logical cluster, if the user may
// access it or the authorization fails with an error. Every user can send requests that are refused in the end, so
// otherwise the owner is the logical cluster that the user comes from, or the user itself. Requests of impersonated
// users, of whom there can be any number, count for the requester.
func (a *Authorizer) FlowOwner(ctx context.Context, u user.Info) string {
	cluster, _ := logicalcluster.From(ctx)
	if original, ok := requester.From(ctx); ok {
		u = original
	}
	if IsServiceAccount(u) && InScope(cluster, u) {
		return cluster.String()
	}
	checkCtx := audit.WithAuditContext(ctx) // the check is not part of the client's request
	decision, _, err := a.Authorize(checkCtx, authorizer.AttributesRecord{User: u, Verb: "access", Path: "/"})
	if decision == authorizer.DecisionAllow || err != nil {
		return cluster.String()
	}
	if origins := u.GetExtra()[ClusterNameExtraKey]; len(origins) == 1 {
		return origins[0]
	}
	return "user " + u.GetName() // names of logical clusters contain no space
}
