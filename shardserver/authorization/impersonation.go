package authorization

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
)

// Verbs of the stock impersonation filter: of plain impersonation, and those of its constrained modes, which are followed by
// the mode, and by the mode and the verb of the request.
const (
	verbImpersonate     = "impersonate"
	verbImpersonateMode = "impersonate:"
	verbImpersonateOn   = "impersonate-on:"

	verbImpersonateAssociatedNode   = verbImpersonateMode + "associated-node"
	verbImpersonateOnAssociatedNode = verbImpersonateOn + "associated-node:"
)

// protectedGroups may be impersonated only by their own members: a tenant's RBAC can grant `impersonate` on any name,
// but these groups have permissions outside of the tenant's logical cluster.
var protectedGroups = []string{
	GroupMasters,
	GroupLogicalClusterAdmin,
	GroupExternalLogicalClusterAdmin,
	GroupBootstrapper,
	GroupAdmin,
	GroupShard,
	GroupCache,
	user.AllAuthenticated,
}

func isProtectedGroup(group string) bool {
	return slices.Contains(protectedGroups, group) ||
		strings.HasPrefix(group, InitializerGroupPrefix) || strings.HasPrefix(group, TerminatorGroupPrefix)
}

// deniesImpersonation evaluates the authorization requests that the stock impersonation filter makes for each header.
// It refuses
//
//   - groups with permissions beyond the logical cluster, directly or inside a warrant, to users who are not members;
//   - all groups, or all extra values, at once: the filter asks for that first if there are many, and then for each;
//   - the constrained mode of associated nodes: logical clusters have no nodes that a service account could be associated
//     with, and the filter hides from authorization who asks.
//
// The other constrained modes are authorized like plain impersonation, to which the filter falls back.
func deniesImpersonation(ctx context.Context, attributes authorizer.Attributes) (reason string, denied bool) {
	verb := attributes.GetVerb()
	if verb == verbImpersonateAssociatedNode || strings.HasPrefix(verb, verbImpersonateOnAssociatedNode) {
		return "", true // checked in addition to other modes, so no audit annotation is needed
	}
	if verb != verbImpersonate && !strings.HasPrefix(verb, verbImpersonateMode) || !attributes.IsResourceRequest() {
		return "", false
	}
	if verb != verbImpersonate && isForAll(attributes) {
		return "", true
	}
	cluster, _ := logicalcluster.From(ctx)
	ownGroups := EffectiveGroups(EffectiveUsers(cluster, attributes.GetUser()))
	for _, group := range impersonatedGroups(attributes) {
		if isProtectedGroup(group) && !ownGroups[group] {
			return "impersonation is not allowed for the requestor", true
		}
	}
	return "", false
}

// isImpersonation reports whether a request is one of those that the stock impersonation filter makes. What the impersonated
// user requests is authorized on its own.
func isImpersonation(attributes authorizer.Attributes) bool {
	verb := attributes.GetVerb()
	return verb == verbImpersonate || strings.HasPrefix(verb, verbImpersonateMode) || strings.HasPrefix(verb, verbImpersonateOn)
}

// isForAll reports whether an authorization request covers all groups, or all extra values.
func isForAll(attributes authorizer.Attributes) bool {
	switch attributes.GetResource() {
	case "groups":
		return attributes.GetName() == "*"
	case "userextras":
		return attributes.GetSubresource() == "*"
	}
	return false
}

// impersonatedGroups returns the groups that one authorization request covers.
func impersonatedGroups(attributes authorizer.Attributes) []string {
	switch {
	case attributes.GetResource() == "groups":
		return []string{attributes.GetName()}
	case attributes.GetResource() == "userextras" && attributes.GetSubresource() == WarrantExtraKey:
		return warrantGroups(attributes.GetName())
	}
	return nil
}

// warrantGroups returns the groups of a warrant and of the warrants nested in it, without the authenticated group,
// which grants nothing.
func warrantGroups(encoded string) []string {
	bearer, ok := decodeWarrant(encoded)
	if !ok {
		return nil
	}
	groups := slices.DeleteFunc(slices.Clone(bearer.GetGroups()), func(group string) bool { return group == user.AllAuthenticated })
	for _, inner := range bearer.GetExtra()[WarrantExtraKey] {
		groups = append(groups, warrantGroups(inner)...)
	}
	return groups
}

// WithImpersonationScope restricts an impersonated user to the request's logical cluster for the handlers after it:
// admission, escalation checks and the content of a SelfSubjectReview. It must run after authorization, which applies
// the same rule to its own decisions.
func WithImpersonationScope(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		if u, ok := request.UserFrom(ctx); ok {
			if restricted := restrictScope(ctx, u); restricted != u {
				req = req.WithContext(request.WithUser(ctx, restricted))
			}
		}
		handler.ServeHTTP(w, req)
	})
}

// restrictScope returns u with the scope of the request's logical cluster if u is impersonated and the requester is not
// privileged in all logical clusters. Other users are returned unchanged.
func restrictScope(ctx context.Context, u user.Info) user.Info {
	original, ok := requester.From(ctx)
	if !ok || isSameUser(u, original) || slices.Contains(original.GetGroups(), GroupMasters) {
		return u
	}
	if current, ok := request.UserFrom(ctx); !ok || !isSameUser(u, current) {
		return u // for example the subject of an access review
	}
	cluster, _ := logicalcluster.From(ctx)
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: addScope(u.GetExtra(), scopePrefix+cluster.String())}
}

// addScope adds a scope to a user's extra and to every warrant in it, which would otherwise count outside of the scope.
func addScope(extra map[string][]string, scope string) map[string][]string {
	out := maps.Clone(extra)
	if out == nil {
		out = map[string][]string{}
	}
	if !slices.Contains(out[ScopesExtraKey], scope) {
		out[ScopesExtraKey] = append(slices.Clone(out[ScopesExtraKey]), scope)
	}
	warrants := out[WarrantExtraKey]
	delete(out, WarrantExtraKey)
	for _, encoded := range warrants {
		var warrant Warrant
		if err := json.Unmarshal([]byte(encoded), &warrant); err != nil {
			continue // a warrant that cannot be decoded grants nothing
		}
		warrant.Extra = addScope(warrant.Extra, scope)
		if encodedWarrant, err := json.Marshal(warrant); err == nil {
			out[WarrantExtraKey] = append(out[WarrantExtraKey], string(encodedWarrant))
		}
	}
	return out
}

// isSameUser reports whether two users are the same object. Only pointers can be: equal contents do not make an
// impersonated user the requester.
func isSameUser(a, b user.Info) bool {
	left, ok := a.(*user.DefaultInfo)
	right, alsoOK := b.(*user.DefaultInfo)
	return ok && alsoOK && left == right
}
