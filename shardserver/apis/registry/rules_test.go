package registry

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestSelectorsAreBounded(t *testing.T) {
	selector := func(values int) *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchLabels:      map[string]string{"a": "b"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: metav1.LabelSelectorOpIn, Values: slices.Repeat([]string{"v"}, values)}},
		}
	}
	if errs := ValidateSelector(selector(MaxSelectorTerms-2), field.NewPath("selector")); len(errs) > 0 {
		t.Errorf("at the limit: %v", errs)
	}
	if errs := ValidateSelector(selector(MaxSelectorTerms-1), field.NewPath("selector")); len(errs) != 1 || errs[0].Field != "selector" {
		t.Errorf("beyond the limit: %v", errs)
	}
}
