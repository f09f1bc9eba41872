package authorization_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
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

// TestFlowOwnersAreBounded asks for more flow owners than are cached.
func TestFlowOwnersAreBounded(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, nil)
	ctx := logicalcluster.With(t.Context(), clusterA)
	for i := range authorization.MaxFlowOwners + 100 {
		s.Authorizer.FlowOwner(ctx, newUser(fmt.Sprintf("user-%d", i)))
	}
	if n := s.Authorizer.CachedFlowOwners(); n == 0 || n > authorization.MaxFlowOwners {
		t.Errorf("%d flow owners are cached, want at most %d", n, authorization.MaxFlowOwners)
	}
}

func TestOrigin(t *testing.T) {
	robot := newUser("system:serviceaccount:default:robot", "system:serviceaccounts")
	robot.Extra = map[string][]string{authorization.ClusterNameExtraKey: {"b"}}
	component := newUser("component", user.SystemPrivilegedGroup)
	for name, tc := range map[string]struct {
		requester, user user.Info
		want            string
	}{
		"a user":                                {newUser("alice"), newUser("alice"), "user alice"},
		"service accounts of a logical cluster": {robot, robot, "b"},
		"an impersonated user":                  {robot, newUser("alice"), "b"},
		"a user that a component of the installation impersonates": {component, newUser("alice"), "user alice"},
	} {
		t.Run(name, func(t *testing.T) {
			authenticate := requester.NewAuthenticator(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: tc.requester}, true, nil
			}))
			requester.With(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if _, _, err := authenticate.AuthenticateRequest(req); err != nil {
					t.Error(err)
				}
				if got := authorization.Origin(req.Context(), tc.user); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		})
	}
}
