package authorization

import (
	"context"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

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
	key := flowKey{cluster, originOf(u), u.GetName()}
	if owner, ok := a.flowOwners.Get(key); ok {
		return owner.(string)
	}
	// Without the request info, the check is not audited as the decision about the client's request.
	checkCtx := request.WithRequestInfo(ctx, &request.RequestInfo{})
	decision, _, err := a.Authorize(checkCtx, authorizer.AttributesRecord{User: u, Verb: "access", Path: "/"})
	if err != nil {
		return cluster.String()
	}
	owner := key.origin
	if decision == authorizer.DecisionAllow {
		owner = cluster.String()
	}
	a.flowOwners.Add(key, owner, flowOwnerTTL)
	return owner
}

// flowKey identifies a user of a logical cluster. Groups are not part of it: a wrong owner for a few seconds only changes
// where requests wait.
type flowKey struct {
	cluster      logicalcluster.Name
	origin, name string
}

const (
	// maxFlowOwners bounds the number of cached owners of one shard.
	maxFlowOwners = 4096
	flowOwnerTTL  = 10 * time.Second
)

// Origin returns the logical cluster that a user comes from, or the user itself. The origin of an impersonated user is
// that of the requester, unless the requester is a component of the installation.
func Origin(ctx context.Context, u user.Info) string {
	if original, ok := requester.From(ctx); ok && !slices.Contains(original.GetGroups(), user.SystemPrivilegedGroup) {
		u = original
	}
	return originOf(u)
}

func originOf(u user.Info) string {
	if origins := u.GetExtra()[ClusterNameExtraKey]; len(origins) == 1 {
		return origins[0]
	}
	return "user " + u.GetName() // names of logical clusters contain no space
}
