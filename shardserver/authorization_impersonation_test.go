package shardserver_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// impersonationRules are the permissions that a constrained mode needs: to impersonate a name, and to list config maps so.
func impersonationRules(mode, resource, name string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{"impersonate:" + mode}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{resource}, ResourceNames: []string{name}},
		{Verbs: []string{"impersonate-on:" + mode + ":list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
	}
}

// testConstrainedImpersonation has a user who may impersonate others in one workspace, but only to list config maps, and a
// workspace where everybody may list them and nobody may impersonate.
func testConstrainedImpersonation(t *testing.T, s *shardtesting.Shard) {
	granted, other := s.NewWorkspace(t, "root", "impersonation").Spec.Cluster, s.NewWorkspace(t, "root", "no-impersonation").Spec.Cluster
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "user"}
	everybody := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}
	for _, cluster := range []string{granted, other} {
		grant(t, s, shardtesting.At(s.Masters(t), cluster), "read", []rbacv1.PolicyRule{
			{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
			{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
		}, everybody)
	}
	rules := slices.Concat(
		impersonationRules("user-info", "users", "bob"),
		impersonationRules("serviceaccount", "serviceaccounts", "robot"),
		impersonationRules("arbitrary-node", "nodes", "machine"),
		impersonationRules("associated-node", "nodes", "*"),
		[]rbacv1.PolicyRule{
			{Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"groups"}},
			{Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"uids"}, ResourceNames: []string{"7"}},
			{Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"userextras/example.com/team"}, ResourceNames: []string{"blue"}},
		})
	grant(t, s, shardtesting.At(s.Masters(t), granted), "impersonate", rules, user)

	as := func(cluster string, impersonate rest.ImpersonationConfig) *rest.Config {
		config := shardtesting.At(s.User(t), cluster)
		config.Impersonate = impersonate
		return config
	}
	list := func(ctx context.Context, cluster string, impersonate rest.ImpersonationConfig) error {
		_, err := s.Kubernetes(t, as(cluster, impersonate)).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err
	}
	bob := rest.ImpersonationConfig{UserName: "bob"}
	shardtesting.Eventually(t, "the permissions", func(ctx context.Context) error { return list(ctx, granted, bob) })
	for name, tc := range map[string]struct {
		impersonate rest.ImpersonationConfig
		allowed     bool
	}{
		"a user":                                 {bob, true},
		"another user":                           {rest.ImpersonationConfig{UserName: "alice"}, false},
		"a group":                                {rest.ImpersonationConfig{UserName: "bob", Groups: []string{"team"}}, true},
		"many groups":                            {rest.ImpersonationConfig{UserName: "bob", Groups: []string{"a", "b", "c", "d", "e"}}, true},
		"masters":                                {rest.ImpersonationConfig{UserName: "bob", Groups: []string{"system:masters"}}, false},
		"a group of kcp":                         {rest.ImpersonationConfig{UserName: "bob", Groups: []string{"system:kcp:admin"}}, false},
		"a group of kcp among many":              {rest.ImpersonationConfig{UserName: "bob", Groups: []string{"a", "b", "c", "d", "system:kcp:admin"}}, false},
		"a UID and an extra value":               {rest.ImpersonationConfig{UserName: "bob", UID: "7", Extra: map[string][]string{"example.com/team": {"blue"}}}, true},
		"another UID":                            {rest.ImpersonationConfig{UserName: "bob", UID: "8"}, false},
		"another extra value":                    {rest.ImpersonationConfig{UserName: "bob", Extra: map[string][]string{"example.com/team": {"red"}}}, false},
		"a service account":                      {rest.ImpersonationConfig{UserName: "system:serviceaccount:default:robot"}, true},
		"another service account":                {rest.ImpersonationConfig{UserName: "system:serviceaccount:default:other"}, false},
		"a service account with a group":         {rest.ImpersonationConfig{UserName: "system:serviceaccount:default:robot", Groups: []string{"team"}}, false},
		"a node":                                 {rest.ImpersonationConfig{UserName: "system:node:machine"}, true},
		"another node, of which mode associated": {rest.ImpersonationConfig{UserName: "system:node:other"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, attempt := range []string{"first", "second"} { // the filter remembers decisions
				if err := list(t.Context(), granted, tc.impersonate); (err == nil) != tc.allowed || err != nil && !apierrors.IsForbidden(err) {
					t.Errorf("%s attempt: %v", attempt, err)
				}
				if err := list(t.Context(), other, tc.impersonate); !apierrors.IsForbidden(err) {
					t.Errorf("%s attempt in another workspace: %v", attempt, err)
				}
			}
			if _, err := s.Kubernetes(t, as(granted, tc.impersonate)).CoreV1().ConfigMaps("default").Get(t.Context(), "x", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("another verb: %v", err)
			}
		})
	}
	t.Run("a permission that was revoked", func(t *testing.T) {
		if err := s.Kubernetes(t, shardtesting.At(s.Masters(t), granted)).RbacV1().ClusterRoleBindings().Delete(t.Context(), "impersonate", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "refusals", func(ctx context.Context) error {
			if err := list(ctx, granted, bob); !apierrors.IsForbidden(err) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	})
}
