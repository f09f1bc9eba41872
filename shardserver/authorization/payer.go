package authorization

import (
	"context"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
)

// Payer names whose load a request to the context's logical cluster is: its own, if the user may enter it. Anybody can
// name it in a request that is refused in the end, so a user that another logical cluster vouches for is the load of
// that one, and everybody else their own. Who impersonates others, of whom there can be any number, pays for them.
func (a *Authorizer) Payer(ctx context.Context, u user.Info) string {
	cluster, _ := logicalcluster.From(ctx)
	if who, ok := requester.From(ctx); ok {
		u = who
	}
	if IsServiceAccount(u) && InScope(cluster, u) {
		return cluster.String()
	}
	silent := audit.WithAuditContext(ctx) // the question is not the client's
	decision, _, err := a.Authorize(silent, authorizer.AttributesRecord{User: u, Verb: "access", Path: "/"})
	if decision == authorizer.DecisionAllow || err != nil {
		return cluster.String()
	}
	if origins := u.GetExtra()[ClusterNameExtraKey]; len(origins) == 1 {
		return origins[0]
	}
	return "user " + u.GetName() // a space is in no name of a logical cluster
}
