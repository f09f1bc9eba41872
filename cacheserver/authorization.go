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
	// ShardGroup is the group of shards, and of servers beside them: it may read everything. The user name of a shard is
	// ShardUserPrefix + its name, which lets it write its own part.
	ShardGroup      = "system:kcp:shard"
	ShardUserPrefix = "system:kcp:shard:"
	// CacheGroup is the group of caches below this one. The user name of a cache is CacheUserPrefix + its name. It may
	// read everything, and write whatever it brings up for its shards; objects say which cache they came by, and no cache
	// touches those of another (package hierarchy).
	CacheGroup      = "system:kcp:cache"
	CacheUserPrefix = "system:kcp:cache:"
)

// Authorizer decides who may do what in a cache: masters everything, shards and caches their part, nobody else
// anything. The scope comes from the context.
type Authorizer struct {
	// AlwaysAllow are paths of the process that are open to everybody; a trailing "*" allows all below.
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
		return authorizer.DecisionDeny, "only system:masters may do this", nil
	case strings.HasPrefix(attributes.GetVerb(), "impersonate"):
		return authorizer.DecisionDeny, "nobody but system:masters acts for others", nil
	case !attributes.IsResourceRequest() && !isDiscoveryPath(attributes.GetPath()):
		return authorizer.DecisionDeny, "what is of the whole process is no part of a shard", nil
	}
	if slices.Contains(u.GetGroups(), ShardGroup) && attributes.IsReadOnly() {
		return authorizer.DecisionAllow, "", nil
	}
	if shard, ok := parseMember(u, ShardGroup, ShardUserPrefix); ok {
		if target.Shard == shard {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, fmt.Sprintf("shard %q writes its own part of the cache alone", shard), nil
	}
	if _, ok := parseMember(u, CacheGroup, CacheUserPrefix); ok {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "the cache is for shards", nil
}

func (a Authorizer) isAlwaysAllowed(path string) bool {
	return slices.ContainsFunc(a.AlwaysAllow, func(allowed string) bool {
		prefix, wildcard := strings.CutSuffix(allowed, "*")
		return path == allowed || wildcard && strings.HasPrefix(path, prefix)
	})
}

// isDiscoveryPath tells whether a path leads to documents about the API.
func isDiscoveryPath(path string) bool {
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
}

// parseMember returns the name of a shard or cache, if that is what the user is.
func parseMember(u user.Info, group, prefix string) (string, bool) {
	name, ok := strings.CutPrefix(u.GetName(), prefix)
	return name, ok && name != "" && slices.Contains(u.GetGroups(), group)
}
