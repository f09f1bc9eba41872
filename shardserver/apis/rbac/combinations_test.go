package rbac

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
)

func names(n int) []string { return strings.Split(strings.Repeat("x,", n-1)+"x", ",") }

func TestCombinations(t *testing.T) {
	for name, test := range map[string]struct {
		rules []rbac.PolicyRule
		want  int
	}{
		"one group, resource and verb":      {[]rbac.PolicyRule{{APIGroups: names(1), Resources: names(1), Verbs: names(1)}}, 1},
		"all lists are multiplied":          {[]rbac.PolicyRule{{APIGroups: names(2), Resources: names(2), Verbs: names(2), ResourceNames: names(2)}}, 16},
		"URLs are multiplied by verbs":      {[]rbac.PolicyRule{{NonResourceURLs: names(3), Verbs: names(2)}}, 6},
		"rules are added":                   {[]rbac.PolicyRule{{NonResourceURLs: names(3), Verbs: names(2)}, {NonResourceURLs: names(1), Verbs: names(2)}}, 8},
		"an incomplete rule has none":       {[]rbac.PolicyRule{{Resources: names(3), Verbs: names(2)}}, 0},
		"counting ends beyond the limit":    {[]rbac.PolicyRule{{APIGroups: names(9), Resources: names(9), Verbs: names(9), ResourceNames: names(9)}}, 21},
		"rules together exceed the limit":   {[]rbac.PolicyRule{{NonResourceURLs: names(11), Verbs: names(1)}, {NonResourceURLs: names(11), Verbs: names(1)}}, 21},
		"exactly the limit is not too much": {[]rbac.PolicyRule{{NonResourceURLs: names(10), Verbs: names(2)}}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			if got := combinations(test.rules, 20); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestRolesWithTooManyPermissions(t *testing.T) {
	alice := request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	masters := request.WithUser(t.Context(), &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
	large := []rbac.PolicyRule{{APIGroups: names(3), Resources: names(3), Verbs: names(3)}}
	small := []rbac.PolicyRule{{APIGroups: names(3), Resources: names(3), Verbs: names(1)}}
	for name, test := range map[string]struct {
		ctx        context.Context
		rules, old []rbac.PolicyRule
		refused    bool
	}{
		"a large role is refused":        {ctx: alice, rules: large, refused: true},
		"a small role is accepted":       {ctx: alice, rules: small},
		"a stored role may stay":         {ctx: alice, rules: large, old: large},
		"a role may not become large":    {ctx: alice, rules: large, old: small, refused: true},
		"the system creates large roles": {ctx: masters, rules: large},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkCombinations(test.ctx, "Role", "r", test.rules, test.old, 20)
			if apierrors.IsInvalid(err) != test.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLargeRolesAreNotResolvedForBindings(t *testing.T) {
	rule := rbacv1.PolicyRule{APIGroups: names(3), Resources: names(3), Verbs: names(3)}
	role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{rule}}
	role.Name = "large"
	resolver, _ := validation.NewTestRuleResolver(nil, nil, []*rbacv1.ClusterRole{role}, nil)
	ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: "large"}
	if _, err := (boundedResolver{resolver, 20}).GetRoleReferenceRules(t.Context(), ref, ""); err == nil || !strings.Contains(err.Error(), "more than 20 combinations") {
		t.Errorf("got %v", err)
	}
	if rules, err := (boundedResolver{resolver, 27}).GetRoleReferenceRules(t.Context(), ref, ""); err != nil || len(rules) != 1 {
		t.Errorf("at the limit: got %v, %v", rules, err)
	}
}
