package lifecycle

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"
)

func newSelectedRole(name string, rules int) *rbac.ClusterRole {
	role := &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"part": "yes"}}}
	for i := range rules {
		role.Rules = append(role.Rules, rbac.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{fmt.Sprint("r", i)}})
	}
	return role
}

func newAggregated() *rbac.ClusterRole {
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"part": "yes"}}
	return &rbac.ClusterRole{
		ObjectMeta:      metav1.ObjectMeta{Name: "all"},
		AggregationRule: &rbac.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{selector, selector}},
	}
}

func TestAggregatedRulesAreUnique(t *testing.T) {
	other := newSelectedRole("b", 1)
	other.Rules = append(other.Rules,
		rbac.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"r1"}, ResourceNames: []string{}}, // equal
		rbac.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, NonResourceURLs: []string{"r1"}})
	rules, err := aggregate(newAggregated(), []*rbac.ClusterRole{other, newSelectedRole("a", 2)})
	if err != nil || len(rules) != 3 || rules[0].Resources[0] != "r0" || rules[1].Resources[0] != "r1" || rules[2].NonResourceURLs[0] != "r1" {
		t.Errorf("got %+v, %v", rules, err)
	}
}

// Allocations grow with the rules, where comparing each with each other would grow with their square.
func TestAggregationIsLinear(t *testing.T) {
	measure := func(rules int) float64 {
		all := []*rbac.ClusterRole{newSelectedRole("a", rules)}
		return testing.AllocsPerRun(1, func() {
			if _, err := aggregate(newAggregated(), all); err != nil {
				t.Error(err)
			}
		})
	}
	if small, large := measure(500), measure(2000); large > 6*small {
		t.Errorf("%.0f allocations for 500 rules, %.0f for 2000", small, large)
	}
}
