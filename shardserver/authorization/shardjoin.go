package authorization

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// shardJoinAuthorizer authorizes other shards of the installation to join it without administrator credentials: in root
// they may read the APIExports, whose identities they need, and write the Shard object of their own name. A shard can
// neither read nor change the Shard of another. For all other requests it has no opinion, and so it has on a shard that
// does not have root: a Shard object written there would hide the shards of root from that shard.
type shardJoinAuthorizer struct{ registry *storage.Registry }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (s shardJoinAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster != logicalcluster.Root || !a.IsResourceRequest() || !slices.Contains(a.GetUser().GetGroups(), GroupShard) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	reason := joinReason(a)
	if reason == "" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if local, err := s.registry.IsLocal(ctx, cluster); err != nil || !local {
		return authorizer.DecisionNoOpinion, "", err
	}
	return authorizer.DecisionAllow, reason, nil
}

// joinReason returns the reason why a request in root is needed to join the installation, or an empty string if it is
// not.
func joinReason(a authorizer.Attributes) string {
	switch {
	case a.GetSubresource() != "" || a.GetName() == "":
	case a.GetAPIGroup() == "apis.kcp.io" && a.GetResource() == "apiexports" && a.GetVerb() == "get":
		return "a shard reads the identities of root"
	case a.GetAPIGroup() == "core.kcp.io" && a.GetResource() == "shards" && ShardUserPrefix+a.GetName() == a.GetUser().GetName() && slices.Contains(registrationVerbs, a.GetVerb()):
		return "a shard registers itself"
	}
	return ""
}

// registrationVerbs are the verbs that a shard needs for its Shard object. A create request has a name if the object is
// applied.
var registrationVerbs = []string{"get", "create", "update", "patch"}
