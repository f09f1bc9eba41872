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

// guardedGroups may be impersonated only by their own members: a tenant's RBAC can grant `impersonate` on any name,
// but these names mean something outside of the tenant's logical cluster.
var guardedGroups = []string{
	GroupMasters,
	GroupLogicalClusterAdmin,
	GroupExternalLogicalClusterAdmin,
	GroupBootstrapper,
	GroupAdmin,
	GroupShard,
	GroupCache,
	user.AllAuthenticated,
}

func guarded(group string) bool {
	return slices.Contains(guardedGroups, group) ||
		strings.HasPrefix(group, InitializerGroupPrefix) || strings.HasPrefix(group, TerminatorGroupPrefix)
}

// impersonationRefused looks at the questions that the stock impersonation filter asks for each header, and refuses
//
//   - groups with a meaning beyond the logical cluster, openly or inside a warrant, to who is not a member;
//   - an origin in another logical cluster, openly or inside a warrant, to who does not come from there: it counts
//     (as ClusterGroupPrefix and ForeignServiceAccountPrefix) outside of the request's logical cluster;
//   - the "constrained" modes altogether: their filter keeps decisions by user, without the logical cluster, and would
//     carry one from a tenant's workspace into every other (wall W7). Without them it falls back to plain
//     impersonation, which asks every time.
func impersonationRefused(ctx context.Context, attributes authorizer.Attributes) (reason string, refused bool) {
	verb := attributes.GetVerb()
	if strings.HasPrefix(verb, "impersonate:") || strings.HasPrefix(verb, "impersonate-on:") {
		return "", true // asked along with plain impersonation, so not worth an audit annotation
	}
	if verb != "impersonate" || !attributes.IsResourceRequest() {
		return "", false
	}
	cluster, _ := logicalcluster.From(ctx)
	held := EffectiveGroups(EffectiveUsers(cluster, attributes.GetUser()))
	groups, origins := requested(attributes)
	for _, group := range groups {
		if guarded(group) && !held[group] {
			return "impersonation is not allowed for the requestor", true
		}
	}
	for _, origin := range origins {
		if origin != cluster.String() && !slices.Contains(attributes.GetUser().GetExtra()[ClusterNameExtraKey], origin) {
			return "impersonation of identities of another logical cluster is not allowed", true
		}
	}
	return "", false
}

// requested are the groups and the origins that one question is about.
func requested(attributes authorizer.Attributes) (groups, origins []string) {
	switch attributes.GetResource() {
	case "groups":
		return []string{attributes.GetName()}, nil
	case "userextras":
		switch attributes.GetSubresource() {
		case WarrantExtraKey:
			return warrantGroups(attributes.GetName()), warrantOrigins(attributes.GetName())
		case ClusterNameExtraKey:
			return nil, []string{attributes.GetName()}
		}
	}
	return nil, nil
}

// warrantGroups are the groups inside a warrant and the warrants inside it. Being authenticated is no power that a
// warrant could add.
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

// warrantOrigins are the logical clusters that a warrant, and the warrants inside it, say they come from.
func warrantOrigins(encoded string) []string {
	bearer, ok := decodeWarrant(encoded)
	if !ok {
		return nil
	}
	origins := slices.Clone(bearer.GetExtra()[ClusterNameExtraKey])
	for _, inner := range bearer.GetExtra()[WarrantExtraKey] {
		origins = append(origins, warrantOrigins(inner)...)
	}
	return origins
}

// WithImpersonationScope narrows an impersonated user to the request's logical cluster for everything below:
// admission, escalation checks and what a SelfSubjectReview shows. It belongs behind authorization, which applies the
// same rule to its own decisions.
func WithImpersonationScope(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		if u, ok := request.UserFrom(ctx); ok {
			if narrowed := narrow(ctx, u); narrowed != u {
				req = req.WithContext(request.WithUser(ctx, narrowed))
			}
		}
		handler.ServeHTTP(w, req)
	})
}

// narrow returns u as it counts in the request: with the scope of the request's logical cluster if u is who is being
// impersonated and the requester does not stand above all logical clusters. Anybody else is returned as is.
func narrow(ctx context.Context, u user.Info) user.Info {
	who, ok := requester.From(ctx)
	if !ok || same(u, who) || slices.Contains(who.GetGroups(), GroupMasters) {
		return u
	}
	if current, ok := request.UserFrom(ctx); !ok || !same(u, current) {
		return u // the subject of an access review, say
	}
	cluster, _ := logicalcluster.From(ctx)
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: scoped(u.GetExtra(), scopePrefix+cluster.String())}
}

// scoped adds a scope to a user's extra and to every warrant in it, which would otherwise count outside of the scope.
func scoped(extra map[string][]string, scope string) map[string][]string {
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
			continue // it grants nothing anyway
		}
		warrant.Extra = scoped(warrant.Extra, scope)
		if narrowed, err := json.Marshal(warrant); err == nil {
			out[WarrantExtraKey] = append(out[WarrantExtraKey], string(narrowed))
		}
	}
	return out
}

// same tells whether two users are the same object. Only pointers can be: equal contents do not make an impersonated
// user the requester.
func same(a, b user.Info) bool {
	left, ok := a.(*user.DefaultInfo)
	right, alsoOK := b.(*user.DefaultInfo)
	return ok && alsoOK && left == right
}
