package authorization

import (
	"context"
	"errors"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// newRepeatedBindings returns a policy in which bindings give one role of so many rules to a user, and counts the reads of the role.
func newRepeatedBindings(bindings, roleRules int) *snapshot {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
	for i := range roleRules {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{fmt.Sprint("r", i)}})
	}
	s := &snapshot{clusterRoles: map[string]*rbacv1.ClusterRole{"large": role}}
	for i := range bindings {
		s.clusterRoleBindings = append(s.clusterRoleBindings, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i)},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "alice"}},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "large"},
		})
	}
	return s
}

func TestRulesOfARoleAreVisitedOnce(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice"}
	ctx := logicalcluster.With(t.Context(), logicalcluster.MustParseName("a"))
	r := rules{bootstrap: newPolicy(&snapshot{}), local: newPolicy(newRepeatedBindings(20, 30))}
	visits := 0
	r.VisitRulesFor(ctx, alice, "", func(_ fmt.Stringer, rule *rbacv1.PolicyRule, err error) bool {
		if err != nil {
			t.Error(err)
		}
		visits++
		return true
	})
	if visits != 30 {
		t.Errorf("%d rules were visited for 20 bindings of a role with 30 rules", visits)
	}
	for resource, want := range map[string]authorizer.Decision{"r29": authorizer.DecisionAllow, "r30": authorizer.DecisionNoOpinion} {
		attributes := authorizer.AttributesRecord{User: alice, Verb: "get", Resource: resource, ResourceRequest: true}
		if decision, _, err := r.local.authorize(ctx, attributes); decision != want || err != nil {
			t.Errorf("%s: got %v, %v", resource, decision, err)
		}
	}
}

func TestEvaluationEndsWithItsRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(logicalcluster.With(t.Context(), logicalcluster.MustParseName("a")))
	cancel()
	r := rules{bootstrap: newPolicy(&snapshot{}), local: newPolicy(newRepeatedBindings(1, 1))}
	if got, err := r.RulesFor(ctx, &user.DefaultInfo{Name: "alice"}, ""); len(got) > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("got %d rules, %v", len(got), err)
	}
}

func TestRulesForIsBounded(t *testing.T) {
	ctx := logicalcluster.With(t.Context(), logicalcluster.MustParseName("a"))
	r := rules{bootstrap: newPolicy(&snapshot{}), local: newPolicy(newRepeatedBindings(1, 30)), maxValues: 9} // three per rule
	got, err := r.RulesFor(ctx, &user.DefaultInfo{Name: "alice"}, "")
	if len(got) != 3 || !errors.Is(err, errTooManyRules) {
		t.Errorf("got %d rules, %v", len(got), err)
	}
	if _, _, incomplete, _ := (&Authorizer{rules: r}).RulesFor(ctx, &user.DefaultInfo{Name: "alice"}, ""); !incomplete {
		t.Error("the review does not say that it is incomplete")
	}
}

func TestEffectiveUsersAreBounded(t *testing.T) {
	warrants := make([]string, 2*maxEffectiveUsers)
	for i := range warrants {
		warrants[i] = fmt.Sprintf(`{"user":"u%d"}`, i)
	}
	u := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{WarrantExtraKey: warrants}}
	if got := EffectiveUsers(logicalcluster.MustParseName("a"), u); len(got) != maxEffectiveUsers {
		t.Errorf("got %d users, want %d", len(got), maxEffectiveUsers)
	}
}
