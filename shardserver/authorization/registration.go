package authorization

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// registration gives other shards of the installation what joining it takes, so that they need no administrator's
// credentials: in root, reading the exports, whose identities they need, and keeping the Shard object that has their name.
// One shard can neither read nor change that of another. About everything else it has no opinion.
func registration(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster != logicalcluster.Root || !a.IsResourceRequest() || !slices.Contains(a.GetUser().GetGroups(), GroupShard) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	switch {
	case a.GetSubresource() != "" || a.GetName() == "":
	case a.GetAPIGroup() == "apis.kcp.io" && a.GetResource() == "apiexports" && a.GetVerb() == "get":
		return authorizer.DecisionAllow, "a shard learns the identities of root", nil
	case a.GetAPIGroup() == "core.kcp.io" && a.GetResource() == "shards" && ShardUserPrefix+a.GetName() == a.GetUser().GetName() && slices.Contains(registering, a.GetVerb()):
		return authorizer.DecisionAllow, "a shard registers itself", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// registering are the verbs by which a shard keeps its Shard object. Creation has a name where the object is applied.
var registering = []string{"get", "create", "update", "patch"}
