package authorization

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func encodeWarrant(t *testing.T, w Warrant) string {
	t.Helper()
	encoded, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

func TestEffectiveUsers(t *testing.T) {
	anonymous := &user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	authenticated := &user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:authenticated"}}
	account := func(clusters ...string) *user.DefaultInfo {
		u := &user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
		if len(clusters) > 0 {
			u.Extra = map[string][]string{ClusterNameExtraKey: clusters}
		}
		return u
	}
	extra := func(key string, values ...string) map[string][]string { return map[string][]string{key: values} }

	for name, tc := range map[string]struct {
		user *user.DefaultInfo
		want []user.Info // nil: the user itself
	}{
		"user without scopes": {user: &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}}},
		"user scoped to this cluster": {
			user: &user.DefaultInfo{Name: "alice", Extra: extra(ScopesExtraKey, "cluster:c")},
		},
		"user scoped to several clusters": {
			user: &user.DefaultInfo{Name: "alice", Extra: extra(ScopesExtraKey, "cluster:b,cluster:c")},
		},
		"all scope values must match": {
			user: &user.DefaultInfo{Name: "alice", Groups: []string{"admins", "system:authenticated"}, Extra: extra(ScopesExtraKey, "cluster:c", "cluster:b")},
			want: []user.Info{authenticated},
		},
		"scope does not match by prefix": {
			user: &user.DefaultInfo{Name: "alice", Extra: extra(ScopesExtraKey, "cluster:cc,cluster:")},
			want: []user.Info{anonymous},
		},
		"empty scope value matches no cluster": {
			user: &user.DefaultInfo{Name: "alice", Extra: extra(ScopesExtraKey, "")},
			want: []user.Info{anonymous},
		},
		"user out of scope has the group of its origin": {
			user: &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}, Extra: map[string][]string{
				ScopesExtraKey: {"cluster:b"}, ClusterNameExtraKey: {"b"},
			}},
			want: []user.Info{&user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:authenticated", "system:cluster:b"}}},
		},
		"user out of scope has no group of its scope": {
			user: &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}, Extra: extra(ScopesExtraKey, "cluster:b")},
			want: []user.Info{authenticated},
		},
		"user out of scope has no group of an origin outside of its scope": {
			user: &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}, Extra: map[string][]string{
				ScopesExtraKey: {"cluster:a"}, ClusterNameExtraKey: {"b"},
			}},
			want: []user.Info{authenticated},
		},
		"user out of two scopes has no group of an origin in one of them": {
			user: &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}, Extra: map[string][]string{
				ScopesExtraKey: {"cluster:a", "cluster:b"}, ClusterNameExtraKey: {"b"},
			}},
			want: []user.Info{authenticated},
		},
		"service account of another cluster, impersonated in this one, has its names there": {
			user: &user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Groups: []string{"system:authenticated"}, Extra: map[string][]string{
				ScopesExtraKey: {"cluster:c"}, ClusterNameExtraKey: {"b"},
			}},
			want: []user.Info{
				&user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:authenticated", "system:cluster:b"}},
				&user.DefaultInfo{Name: "system:kcp:serviceaccount:b:ns:sa", Groups: []string{"system:authenticated"}},
			},
		},
		"service account without a cluster is local": {user: account()},
		"local service account also has its global name": {
			user: account("c"),
			want: []user.Info{account("c"), &user.DefaultInfo{Name: "system:kcp:serviceaccount:c:ns:sa", Groups: []string{"system:authenticated"}}},
		},
		"service account of another cluster has only its global name": {
			user: account("b"),
			want: []user.Info{
				&user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:authenticated", "system:cluster:b"}},
				&user.DefaultInfo{Name: "system:kcp:serviceaccount:b:ns:sa", Groups: []string{"system:authenticated"}},
			},
		},
		"service account of two clusters has no name": {
			user: account("c", "b"),
			want: []user.Info{authenticated},
		},
		"service account out of scope has no global name": {
			user: &user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Extra: map[string][]string{
				ClusterNameExtraKey: {"b"}, ScopesExtraKey: {"cluster:b"},
			}},
			want: []user.Info{&user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated", "system:cluster:b"}}},
		},
		"warrant adds its user": {
			user: &user.DefaultInfo{Name: "alice", Extra: extra(WarrantExtraKey, encodeWarrant(t, Warrant{User: "bob", UID: "1", Groups: []string{"g"}}))},
			want: []user.Info{
				&user.DefaultInfo{Name: "alice", Extra: extra(WarrantExtraKey, encodeWarrant(t, Warrant{User: "bob", UID: "1", Groups: []string{"g"}}))},
				&user.DefaultInfo{Name: "bob", UID: "1", Groups: []string{"g"}},
			},
		},
		"warrant with scopes": {
			user: &user.DefaultInfo{Name: "alice", Extra: extra(WarrantExtraKey, encodeWarrant(t, Warrant{User: "bob", Extra: extra(ScopesExtraKey, "cluster:b")}))},
			want: []user.Info{
				&user.DefaultInfo{Name: "alice", Extra: extra(WarrantExtraKey, encodeWarrant(t, Warrant{User: "bob", Extra: extra(ScopesExtraKey, "cluster:b")}))},
				anonymous,
			},
		},
		"invalid warrants and warrants for service accounts without a cluster are ignored": {
			user: &user.DefaultInfo{Name: "alice", Extra: extra(WarrantExtraKey, "{", `{"groups":["g"]}`, encodeWarrant(t, Warrant{User: "system:serviceaccount:ns:sa"}))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := tc.want
			if want == nil {
				want = []user.Info{tc.user}
			}
			if diff := cmp.Diff(want, EffectiveUsers(logicalcluster.MustParseName("c"), tc.user)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNestedWarrants(t *testing.T) {
	inner := encodeWarrant(t, Warrant{User: "carol", Groups: []string{"system:masters", "inner"}})
	outer := encodeWarrant(t, Warrant{User: "bob", Groups: []string{"outer"}, Extra: map[string][]string{WarrantExtraKey: {inner}}})
	groups := EffectiveGroups(EffectiveUsers(logicalcluster.Root, &user.DefaultInfo{Name: "alice", Extra: map[string][]string{WarrantExtraKey: {outer}}}))
	if diff := cmp.Diff(map[string]bool{"inner": true, "outer": true}, groups); diff != "" {
		t.Error(diff)
	}
}
