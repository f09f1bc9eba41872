package identity

import (
	"slices"
	"strings"
)

// GroupFilter decides which groups of a user shards get to see.
type GroupFilter struct {
	// PassOn keeps only these groups; empty keeps all.
	PassOn []string
	// Drop removes groups and wins over PassOn.
	Drop []string
}

// DefaultDropGroups are groups that mean something only to a shard itself. Nobody gets them through the proxy.
// system:kcp:external-logical-cluster-admin is not among them: shards talk to each other through the proxy with it.
// system:kcp:shard and system:kcp:cache are: what shards and caches may do among themselves, they do at each other's own
// address.
func DefaultDropGroups() []string {
	return []string{"system:masters", "system:kcp:logical-cluster-admin", "system:kcp:initializer:*", "system:kcp:terminator:*", "system:kcp:shard", "system:kcp:cache"}
}

// Apply returns the groups that pass, sorted, each once. Patterns are group names; a trailing "*" matches any rest.
func (f GroupFilter) Apply(groups []string) []string {
	var passed []string
	for _, group := range groups {
		if (len(f.PassOn) == 0 || matches(f.PassOn, group)) && !matches(f.Drop, group) {
			passed = append(passed, group)
		}
	}
	slices.Sort(passed)
	return slices.Compact(passed)
}

func matches(patterns []string, group string) bool {
	for _, pattern := range patterns {
		if prefix, wild := strings.CutSuffix(pattern, "*"); group == pattern || (wild && strings.HasPrefix(group, prefix)) {
			return true
		}
	}
	return false
}

// ParseGroups cleans what a flag brought. A list that was quoted as a whole arrives as one element with commas in
// it; taken literally it would name no group at all, and dropping would silently drop nothing.
func ParseGroups(values []string) []string {
	var groups []string
	for _, value := range values {
		for _, group := range strings.Split(value, ",") {
			if group = strings.Trim(group, ` "'`); group != "" {
				groups = append(groups, group)
			}
		}
	}
	return groups
}
