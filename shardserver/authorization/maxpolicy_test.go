package authorization

import (
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestBindingUsers(t *testing.T) {
	const binding = "apis.kcp.io:binding:"
	type subject struct {
		name   string
		groups []string
	}
	authenticated := []string{binding + "system:authenticated"}
	account := func(extra map[string][]string) *user.DefaultInfo {
		return &user.DefaultInfo{
			Name:   "system:serviceaccount:ns:sa",
			Groups: []string{"system:serviceaccounts", "system:authenticated"}, Extra: extra,
		}
	}
	for name, tc := range map[string]struct {
		user *user.DefaultInfo
		want []subject
	}{
		"user and groups are prefixed": {
			&user.DefaultInfo{Name: "alice", Groups: []string{"staff"}},
			[]subject{{binding + "alice", []string{binding + "staff"}}},
		},
		"service account has its global name": {
			account(map[string][]string{ClusterNameExtraKey: {"c"}}),
			[]subject{
				{binding + "system:kcp:serviceaccount:c:ns:sa", []string{binding + "system:serviceaccounts", binding + "system:authenticated"}},
				{binding + "system:kcp:serviceaccount:c:ns:sa", authenticated},
			},
		},
		"service account without a cluster has its global name": {
			account(nil),
			[]subject{{binding + "system:kcp:serviceaccount:c:ns:sa", []string{binding + "system:serviceaccounts", binding + "system:authenticated"}}},
		},
		"service account of another cluster has only its global name": {
			account(map[string][]string{ClusterNameExtraKey: {"b"}}),
			[]subject{
				{binding + "system:anonymous", []string{binding + "system:authenticated", binding + "system:cluster:b"}},
				{binding + "system:kcp:serviceaccount:b:ns:sa", authenticated},
			},
		},
		"scope of a third cluster yields no user": {
			&user.DefaultInfo{Name: "alice", Groups: []string{"staff", "system:authenticated"}, Extra: map[string][]string{ScopesExtraKey: {"cluster:b"}}},
			[]subject{{binding + "system:anonymous", authenticated}},
		},
		"scope of the consumer's cluster yields an authenticated user": {
			&user.DefaultInfo{Name: "alice", Groups: []string{"staff", "system:authenticated"}, Extra: map[string][]string{ScopesExtraKey: {"cluster:c"}}},
			[]subject{{binding + "system:anonymous", authenticated}},
		},
		"scope of both clusters": {
			&user.DefaultInfo{Name: "alice", Extra: map[string][]string{ScopesExtraKey: {"cluster:c,cluster:policy"}}},
			[]subject{{binding + "alice", nil}},
		},
		"impersonated service account keeps only its name": {
			&user.DefaultInfo{
				Name: "system:serviceaccount:ns:sa", Groups: []string{"staff", "system:authenticated"},
				Extra: map[string][]string{ClusterNameExtraKey: {"c"}, ScopesExtraKey: {"cluster:c"}},
			},
			[]subject{
				{binding + "system:anonymous", []string{binding + "system:authenticated", binding + "system:cluster:c"}},
				{binding + "system:kcp:serviceaccount:c:ns:sa", authenticated},
			},
		},
		"impersonated service account of another cluster has no name": {
			&user.DefaultInfo{
				Name: "system:serviceaccount:ns:sa", Groups: []string{"staff", "system:authenticated"},
				Extra: map[string][]string{ClusterNameExtraKey: {"b"}, ScopesExtraKey: {"cluster:c"}},
			},
			[]subject{{binding + "system:anonymous", authenticated}},
		},
		"warrants, without masters": {
			&user.DefaultInfo{Name: "alice", Extra: map[string][]string{WarrantExtraKey: {
				`{"user":"bob","groups":["staff","system:masters"],"extra":{"authorization.kcp.io/warrant":["{\"user\":\"carol\"}"]}}`,
			}}},
			[]subject{{binding + "alice", nil}, {binding + "bob", []string{binding + "staff"}}, {binding + "carol", nil}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := bindingUsers(logicalcluster.MustParseName("c"), logicalcluster.MustParseName("policy"), tc.user)
			if !slices.EqualFunc(got, tc.want, func(u user.Info, want subject) bool {
				return u.GetName() == want.name && slices.Equal(u.GetGroups(), want.groups) && len(u.GetExtra()) == 0
			}) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
