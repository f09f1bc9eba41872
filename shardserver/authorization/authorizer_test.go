package authorization

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/logicalcluster"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// fakeWebhook records the requests that a webhook receives and allows one user.
type fakeWebhook struct {
	allow string
	users []user.Info
}

func (f *fakeWebhook) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	f.users = append(f.users, attributes.GetUser())
	if attributes.GetUser().GetName() == f.allow {
		return authorizer.DecisionAllow, "because", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestWebhookReceivesClusterAndEffectiveUsers(t *testing.T) {
	hook := &fakeWebhook{allow: "bob"}
	a, err := New(Config{Registry: storage.NewRegistry(kcpcore.Locality), Webhook: hook, Order: []string{ModeAlwaysAllowGroups, ModeWebhook}})
	if err != nil {
		t.Fatal(err)
	}
	own := map[string][]string{WarrantExtraKey: {`{"user":"bob"}`}, clusterNameForWebhook: {"forged"}}
	attributes := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice", Extra: own}, Verb: "get", Path: "/x"}
	decision, reason, err := a.Authorize(logicalcluster.With(t.Context(), logicalcluster.Root), attributes)
	if decision != authorizer.DecisionAllow || reason != "access granted" || err != nil {
		t.Errorf("got %v, %q, %v", decision, reason, err)
	}
	if len(hook.users) != 2 || hook.users[0].GetName() != "alice" || hook.users[1].GetName() != "bob" {
		t.Fatalf("the webhook received %v", hook.users)
	}
	for _, u := range hook.users {
		for _, key := range []string{"authorization.kcp.io/cluster-name", "authorization.kubernetes.io/cluster-name"} {
			if diff := cmp.Diff([]string{"root"}, u.GetExtra()[key]); diff != "" {
				t.Errorf("%s: %s", key, diff)
			}
		}
	}
	for name, tc := range map[string]struct {
		ctx     context.Context
		allowed bool
		want    []string
	}{
		"no logical cluster": {t.Context(), true, nil},
		// The webhook may deny such requests, but not allow them.
		"all logical clusters": {logicalcluster.With(t.Context(), logicalcluster.Wildcard), false, []string{"*"}},
	} {
		hook.users = nil
		if decision, _, _ := a.Authorize(tc.ctx, attributes); (decision == authorizer.DecisionAllow) != tc.allowed {
			t.Errorf("a request to %s: %v", name, decision)
		}
		if len(hook.users) != 2 {
			t.Fatalf("for a request to %s the webhook received %v", name, hook.users)
		}
		for _, u := range hook.users {
			if diff := cmp.Diff(tc.want, u.GetExtra()["authorization.kcp.io/cluster-name"]); diff != "" {
				t.Errorf("a request to %s: %s", name, diff)
			}
		}
	}
}

func TestAuthorizerOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		wrong  string // substring of the error; empty: no error
	}{
		"default":        {Config{}, ""},
		"only RBAC":      {Config{Order: []string{ModeRBAC}}, ""},
		"unknown mode":   {Config{Order: []string{"ABAC"}}, `unknown mode "ABAC"`},
		"duplicate mode": {Config{Order: []string{ModeRBAC, ModeRBAC}}, "listed twice"},
		"invalid path":   {Config{AlwaysAllowPaths: []string{"/a*b"}}, "always allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.Registry = storage.NewRegistry(kcpcore.Locality)
			_, err := New(tc.config)
			if (err == nil) != (tc.wrong == "") || (err != nil && !strings.Contains(err.Error(), tc.wrong)) {
				t.Errorf("got %v, want %q", err, tc.wrong)
			}
		})
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a registry is not required")
	}
}

func TestAuthorizeFailsClosedBeforeAPIsAreInstalled(t *testing.T) {
	a, err := New(Config{Registry: storage.NewRegistry(kcpcore.Locality)})
	if err != nil {
		t.Fatal(err)
	}
	attributes := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice", Groups: []string{GroupAdmin}}, Verb: "get", Path: "/api"}
	if decision, _, err := a.Authorize(logicalcluster.With(t.Context(), logicalcluster.Root), attributes); decision == authorizer.DecisionAllow || err == nil {
		t.Errorf("got %v, %v", decision, err)
	}
}
