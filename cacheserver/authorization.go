package cacheserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/cacheserver/scope"
)

const (
	// ShardGroup is the group of shards, and of other servers of the installation: members may read everything. The
	// user name of a shard is ShardUserPrefix + its name, which may write the objects of that shard.
	ShardGroup      = "system:kcp:shard"
	ShardUserPrefix = "system:kcp:shard:"
	// CacheGroup is the group of child caches. The user name of a cache is CacheUserPrefix + its name. It may read
	// everything, and write objects of all shards; objects carry the name of the cache that copied them, and no cache
	// changes those of another (package hierarchy).
	CacheGroup      = "system:kcp:cache"
	CacheUserPrefix = "system:kcp:cache:"
)

// Authorizer permits everything to system:masters, and to shards and caches as described at their groups; all other
// requests are denied. The scope comes from the context.
type Authorizer struct {
	// AlwaysAllow are paths of the process that need no authorization; a trailing "*" allows all below.
	AlwaysAllow []string
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	u := attributes.GetUser()
	target, scoped := scope.FromContext(ctx)
	switch {
	case u != nil && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup):
		return authorizer.DecisionAllow, "", nil
	case !attributes.IsResourceRequest() && a.isAlwaysAllowed(attributes.GetPath()):
		return authorizer.DecisionAllow, "", nil
	case u == nil || !scoped:
		return authorizer.DecisionDeny, "only system:masters is permitted", nil
	case strings.HasPrefix(attributes.GetVerb(), "impersonate"):
		return authorizer.DecisionDeny, "only system:masters may impersonate", nil
	case !attributes.IsResourceRequest() && !isDiscoveryPath(attributes.GetPath()):
		return authorizer.DecisionDeny, "endpoints of the process are not served in a scope", nil
	}
	if slices.Contains(u.GetGroups(), ShardGroup) && attributes.IsReadOnly() {
		return authorizer.DecisionAllow, "", nil
	}
	if shard, ok := parseMember(u, ShardGroup, ShardUserPrefix); ok {
		if target.Shard == shard {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, fmt.Sprintf("shard %q may write only its own objects", shard), nil
	}
	if _, ok := parseMember(u, CacheGroup, CacheUserPrefix); ok {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "only shards and caches are permitted", nil
}

func (a Authorizer) isAlwaysAllowed(path string) bool {
	return slices.ContainsFunc(a.AlwaysAllow, func(allowed string) bool {
		prefix, wildcard := strings.CutSuffix(allowed, "*")
		return path == allowed || wildcard && strings.HasPrefix(path, prefix)
	})
}

// isDiscoveryPath returns whether a path is a discovery path.
func isDiscoveryPath(path string) bool {
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
}

// isMember returns whether a user is a shard, another server of the installation, or a cache. Those of earlier versions
// send no header.
func isMember(u user.Info) bool {
	return u != nil && (slices.Contains(u.GetGroups(), ShardGroup) || slices.Contains(u.GetGroups(), CacheGroup))
}

// parseMember returns the name of a shard or cache, if the user is one.
func parseMember(u user.Info, group, prefix string) (string, bool) {
	name, ok := strings.CutPrefix(u.GetName(), prefix)
	return name, ok && name != "" && slices.Contains(u.GetGroups(), group)
}
