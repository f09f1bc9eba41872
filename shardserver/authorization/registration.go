package authorization

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// registration gives other shards of the installation what joining it takes, so that they need no administrator's
// credentials: in root, reading the exports, whose identities they need, and keeping the Shard object that has their name.
// One shard can neither read nor change that of another. About everything else it has no opinion, and nothing of it holds
// on a shard that does not have root: what was written there would stand between that shard and the list of shards.
type registration struct{ registry *storage.Registry }

// Authorize implements authorizer.Authorizer.
func (r registration) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster != logicalcluster.Root || !a.IsResourceRequest() || !slices.Contains(a.GetUser().GetGroups(), GroupShard) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	why := joins(a)
	if why == "" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if here, err := r.registry.Here(ctx, cluster); err != nil || !here {
		return authorizer.DecisionNoOpinion, "", err
	}
	return authorizer.DecisionAllow, why, nil
}

// joins says why a request in root is one that joining the installation takes; empty if it is not.
func joins(a authorizer.Attributes) string {
	switch {
	case a.GetSubresource() != "" || a.GetName() == "":
	case a.GetAPIGroup() == "apis.kcp.io" && a.GetResource() == "apiexports" && a.GetVerb() == "get":
		return "a shard learns the identities of root"
	case a.GetAPIGroup() == "core.kcp.io" && a.GetResource() == "shards" && ShardUserPrefix+a.GetName() == a.GetUser().GetName() && slices.Contains(registering, a.GetVerb()):
		return "a shard registers itself"
	}
	return ""
}

// registering are the verbs by which a shard keeps its Shard object. Creation has a name where the object is applied.
var registering = []string{"get", "create", "update", "patch"}
