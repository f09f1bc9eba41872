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
	who := attributes.GetUser()
	target, scoped := scope.From(ctx)
	switch {
	case who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup):
		return authorizer.DecisionAllow, "", nil
	case !attributes.IsResourceRequest() && a.open(attributes.GetPath()):
		return authorizer.DecisionAllow, "", nil
	case who == nil || !scoped:
		return authorizer.DecisionDeny, "only system:masters may do this", nil
	case strings.HasPrefix(attributes.GetVerb(), "impersonate"):
		return authorizer.DecisionDeny, "nobody but system:masters acts for others", nil
	case !attributes.IsResourceRequest() && !discovers(attributes.GetPath()):
		return authorizer.DecisionDeny, "what is of the whole process is no part of a shard", nil
	}
	if slices.Contains(who.GetGroups(), ShardGroup) && attributes.IsReadOnly() {
		return authorizer.DecisionAllow, "", nil
	}
	if shard, ok := member(who, ShardGroup, ShardUserPrefix); ok {
		if target.Shard == shard {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, fmt.Sprintf("shard %q writes its own part of the cache alone", shard), nil
	}
	if _, ok := member(who, CacheGroup, CacheUserPrefix); ok {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "the cache is for shards", nil
}

func (a Authorizer) open(path string) bool {
	return slices.ContainsFunc(a.AlwaysAllow, func(allowed string) bool {
		prefix, wildcard := strings.CutSuffix(allowed, "*")
		return path == allowed || wildcard && strings.HasPrefix(path, prefix)
	})
}

// discovers tells whether a path leads to documents about the API.
func discovers(path string) bool {
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
}

// member returns the name of a shard or cache, if that is what the user is.
func member(who user.Info, group, prefix string) (string, bool) {
	name, ok := strings.CutPrefix(who.GetName(), prefix)
	return name, ok && name != "" && slices.Contains(who.GetGroups(), group)
}
