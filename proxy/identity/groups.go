package identity

import (
	"slices"
	"strings"
)

// GroupFilter selects the groups of a user that are sent to shards.
type GroupFilter struct {
	// PassOn has the groups that are kept; empty keeps all.
	PassOn []string
	// Drop has the groups that are removed; it takes precedence over PassOn.
	Drop []string
}

// DefaultDropGroups are groups that only shards and caches may use, at each other's own address.
// system:kcp:external-logical-cluster-admin is not among them: shards use it to reach each other through the proxy.
func DefaultDropGroups() []string {
	return []string{"system:masters", "system:kcp:logical-cluster-admin", "system:kcp:initializer:*", "system:kcp:terminator:*", "system:kcp:shard", "system:kcp:cache"}
}

// Apply returns the selected groups, sorted and without duplicates. Patterns are group names, or prefixes with a
// trailing "*".
func (f GroupFilter) Apply(groups []string) []string {
	var selected []string
	for _, group := range groups {
		if (len(f.PassOn) == 0 || matches(f.PassOn, group)) && !matches(f.Drop, group) {
			selected = append(selected, group)
		}
	}
	slices.Sort(selected)
	return slices.Compact(selected)
}

func matches(patterns []string, group string) bool {
	for _, pattern := range patterns {
		if prefix, wild := strings.CutSuffix(pattern, "*"); group == pattern || (wild && strings.HasPrefix(group, prefix)) {
			return true
		}
	}
	return false
}

// ParseGroups returns the groups in the values of a flag. A list that was quoted as a whole is one value with commas,
// which taken literally would match no group.
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
