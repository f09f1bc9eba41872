package authorization

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Warrant is one value of WarrantExtraKey: another user whose permissions the bearer may use.
type Warrant struct {
	User   string              `json:"user"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// EffectiveUsers returns the users that count as u in one logical cluster, in evaluation order:
//
//   - u itself if it is in scope, else an anonymous user with only the authenticated group and the group of the logical
//     cluster it comes from;
//   - a service account also under its global name;
//   - every warrant, by the same rules. A warrant for a service account must name the account's logical cluster, and a
//     warrant never yields system:masters. Users beyond maxEffectiveUsers do not count.
//
// Values that cannot be decoded grant nothing. Scopes only take permissions away: they yield no group, and beyond them
// an origin counts only if they contain it. An administrator who impersonates a user from elsewhere, whose scope is the
// administrator's own logical cluster, thus gets permissions of that origin nowhere else.
func EffectiveUsers(cluster logicalcluster.Name, u user.Info) []user.Info {
	return effectiveUsers(cluster, cluster, u)
}

// ForRule returns u, a user of one logical cluster, as a rule of another one that covers the installation names it. Warrants do not
// count. A user who counts in some logical clusters only, because of impersonation or an issuer of one workspace, is merely authenticated, and
// a service account has its global name: otherwise a tenant could assume any name.
func ForRule(cluster, rule logicalcluster.Name, u user.Info) user.Info {
	if !InScope(cluster, u) || !matchesScopes(rule.String(), u) {
		return outOfScopeUser(u, "")
	}
	if namespace, name, ok := parseServiceAccount(u); ok {
		return &user.DefaultInfo{Name: ForeignServiceAccountPrefix + cluster.String() + ":" + namespace + ":" + name, Groups: []string{user.AllAuthenticated}}
	}
	return u
}

// maxEffectiveUsers bounds the evaluations of a policy for one request. Virtual workspaces add one warrant; users who impersonate may add
// as many as fit into the headers.
const maxEffectiveUsers = 64

// effectiveUsers is EffectiveUsers for permissions that the policy of another logical cluster grants.
func effectiveUsers(cluster, policy logicalcluster.Name, u user.Info) []user.Info {
	origin := provenOrigin(policy, u)
	var users []user.Info
	if InScope(cluster, u) {
		users = append(users, u)
	} else {
		users = append(users, outOfScopeUser(u, origin))
	}
	if namespace, name, ok := parseServiceAccount(u); ok && origin != "" && matchesScopes(cluster.String(), u) {
		users = append(users, &user.DefaultInfo{
			Name:   ForeignServiceAccountPrefix + origin + ":" + namespace + ":" + name,
			Groups: []string{user.AllAuthenticated},
		})
	}
	for _, encoded := range u.GetExtra()[WarrantExtraKey] {
		if len(users) >= maxEffectiveUsers {
			break
		}
		if bearer, ok := decodeWarrant(encoded); ok {
			users = append(users, effectiveUsers(cluster, policy, bearer)...)
		}
	}
	return users[:min(len(users), maxEffectiveUsers)]
}

// provenOrigin returns the logical cluster that u comes from, as far as a policy may rely on it; "" if it may not. The
// scopes of u have to contain the logical cluster of the policy, where the user who set the origin has to be trusted, or the
// origin itself.
func provenOrigin(policy logicalcluster.Name, u user.Info) string {
	origins := u.GetExtra()[ClusterNameExtraKey]
	if len(origins) != 1 || !matchesScopes(policy.String(), u) && !matchesScopes(origins[0], u) {
		return ""
	}
	return origins[0]
}

// EffectiveGroups returns the union of the groups of EffectiveUsers.
func EffectiveGroups(users []user.Info) map[string]bool {
	groups := map[string]bool{}
	for _, u := range users {
		for _, group := range u.GetGroups() {
			groups[group] = true
		}
	}
	return groups
}

// InScope reports whether u counts as itself in the logical cluster: its scopes match, and it is not a service account
// of another logical cluster. A service account without a logical cluster is treated as local.
func InScope(cluster logicalcluster.Name, u user.Info) bool {
	if _, _, ok := parseServiceAccount(u); ok {
		switch origins := u.GetExtra()[ClusterNameExtraKey]; len(origins) {
		case 0:
		case 1:
			if origins[0] != cluster.String() {
				return false
			}
		default:
			return false
		}
	}
	return matchesScopes(cluster.String(), u)
}

// IsServiceAccount reports whether u is a service account of any logical cluster.
func IsServiceAccount(u user.Info) bool {
	_, _, ok := parseServiceAccount(u)
	return ok
}

func matchesScopes(cluster string, u user.Info) bool {
	for _, alternatives := range u.GetExtra()[ScopesExtraKey] {
		if !slices.Contains(strings.Split(alternatives, ","), scopePrefix+cluster) {
			return false
		}
	}
	return true
}

func outOfScopeUser(u user.Info, origin string) user.Info {
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	if slices.Contains(u.GetGroups(), user.AllAuthenticated) {
		anonymous.Groups = []string{user.AllAuthenticated}
	}
	if origin != "" {
		anonymous.Groups = append(anonymous.Groups, ClusterGroupPrefix+origin)
	}
	return anonymous
}

func parseServiceAccount(u user.Info) (namespace, name string, ok bool) {
	if !strings.HasPrefix(u.GetName(), serviceaccount.ServiceAccountUsernamePrefix) {
		return "", "", false
	}
	namespace, name, err := serviceaccount.SplitUsername(u.GetName())
	return namespace, name, err == nil
}

func decodeWarrant(encoded string) (user.Info, bool) {
	var warrant Warrant
	if err := json.Unmarshal([]byte(encoded), &warrant); err != nil || warrant.User == "" {
		return nil, false
	}
	bearer := &user.DefaultInfo{
		Name:   warrant.User,
		UID:    warrant.UID,
		Groups: slices.DeleteFunc(slices.Clone(warrant.Groups), func(group string) bool { return group == GroupMasters }),
		Extra:  warrant.Extra,
	}
	if IsServiceAccount(bearer) && len(warrant.Extra[ClusterNameExtraKey]) == 0 {
		return nil, false
	}
	return bearer, true
}
