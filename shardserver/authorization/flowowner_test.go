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
		"user with access counts for the logical cluster":                {newUser("alice"), "a"},
		"user without access counts for itself":                          {newUser("mallory"), "user mallory"},
		"service account counts for its logical cluster":                 {from("a", account, "system:serviceaccounts"), "a"},
		"service account of another logical cluster counts for that one": {from("b", account, "system:serviceaccounts"), "b"},
		"user of another logical cluster counts for that one":            {from("b", "mallory"), "b"},
		"user with the name of a logical cluster counts for itself":      {newUser("b"), "user b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.Authorizer.FlowOwner(logicalcluster.With(t.Context(), clusterA), tc.user); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
