package authorization_test

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/authorization/shardtest"
)

func TestFlowOwner(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, nil)
	s.Grant(t, clusterA, "alice", shardtest.UserSubject("alice"), access)
	from := func(cluster, name string, groups ...string) *user.DefaultInfo {
		u := newUser(name, groups...)
		u.Extra = map[string][]string{authorization.ClusterNameExtraKey: {cluster}}
		return u
	}
	const account = "system:serviceaccount:default:robot"
	for name, tc := range map[string]struct {
		user user.Info
		want string
	}{
		"who may enter is the load of the logical cluster":               {newUser("alice"), "a"},
		"who may not enter is their own":                                 {newUser("mallory"), "user mallory"},
		"a service account belongs to its logical cluster":               {from("a", account, "system:serviceaccounts"), "a"},
		"that of another one is the load of the other":                   {from("b", account, "system:serviceaccounts"), "b"},
		"whom another one vouches for is the load of the other":          {from("b", "mallory"), "b"},
		"a name that looks like one of a logical cluster is no such one": {newUser("b"), "user b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.Authorizer.FlowOwner(logicalcluster.With(t.Context(), clusterA), tc.user); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
