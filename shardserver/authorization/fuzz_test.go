package authorization

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// FuzzEffectiveUsers checks that effective users never have more permissions than the user and its warrants name, for
// any attributes.
func FuzzEffectiveUsers(f *testing.F) {
	f.Add("ada", "cluster:here", "here", `{"user":"eve","groups":["dev"]}`)
	f.Add("system:serviceaccount:ns:sa", "cluster:here,cluster:there", "there", `{"user":"system:serviceaccount:ns:sa","extra":{"authentication.kcp.io/cluster-name":["here"]}}`)
	f.Add("system:serviceaccount:", "cluster:", "", `{"user":"a","groups":["system:masters"],"extra":{"authorization.kcp.io/warrant":["{\"user\":\"b\",\"groups\":[\"system:masters\"]}"]}}`)
	f.Add("", ",", "a:b", `[{`)
	here := logicalcluster.MustParseName("here")
	f.Fuzz(func(t *testing.T, name, scopes, origin, warrant string) {
		u := &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}, Extra: map[string][]string{
			ScopesExtraKey: {scopes}, ClusterNameExtraKey: {origin}, WarrantExtraKey: {warrant},
		}}
		users := EffectiveUsers(here, u)
		if EffectiveGroups(users)[GroupMasters] {
			t.Errorf("warrant %q yields system:masters", warrant)
		}
		inScope := slices.Contains(strings.Split(scopes, ","), "cluster:here")
		if IsServiceAccount(u) {
			inScope = inScope && origin == "here"
		}
		if unchanged := users[0] == user.Info(u); unchanged != inScope {
			t.Errorf("counts as itself: %v; in scope: %v", unchanged, inScope)
		}
		if !inScope && users[0].GetName() != user.Anonymous {
			t.Errorf("out of scope the user name is %q", users[0].GetName())
		}
		var named Warrant
		if json.Unmarshal([]byte(warrant), &named) != nil {
			for _, other := range users[1:] {
				if !strings.HasPrefix(other.GetName(), ForeignServiceAccountPrefix) {
					t.Errorf("invalid warrant yields %q", other.GetName())
				}
			}
		}
		// Attributes of an impersonated user do not count in other logical clusters.
		restricted := &user.DefaultInfo{Name: name, Groups: u.Groups, Extra: addScope(u.Extra, scopePrefix+"other")}
		for _, other := range EffectiveUsers(here, restricted) {
			if other.GetName() != user.Anonymous {
				t.Errorf("scoped to another logical cluster the user name is %q", other.GetName())
			}
			if group := ClusterGroupPrefix + origin; origin != "other" && slices.Contains(other.GetGroups(), group) {
				t.Errorf("scoped to another logical cluster it has the group %q", group)
			}
		}
	})
}

// FuzzRequiredGroups checks that additional groups never turn a match into a refusal, and that no groups never satisfy
// a requirement that names one.
func FuzzRequiredGroups(f *testing.F) {
	f.Add("a,b;c", "a", "b")
	f.Add("", "", "x")
	f.Add(";", "a,b", ",")
	f.Fuzz(func(t *testing.T, required, first, second string) {
		some := map[string]bool{first: true}
		more := map[string]bool{first: true, second: true}
		if satisfies(some, required) && !satisfies(more, required) {
			t.Errorf("%q is satisfied by %q but not together with %q", required, first, second)
		}
		if satisfies(map[string]bool{}, required) {
			t.Errorf("%q is satisfied by no groups", required)
		}
	})
}
