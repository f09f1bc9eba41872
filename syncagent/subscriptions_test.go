package syncagent

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

func TestSelectorOf(t *testing.T) {
	for name, test := range map[string]struct {
		watch   syncagentv1alpha1.RelatedResourceWatch
		matches map[string]bool // by the value of a label
	}{
		"by owner":       {syncagentv1alpha1.RelatedResourceWatch{ByOwner: &syncagentv1alpha1.RelatedResourceWatchByOwner{}}, map[string]bool{"x": true, "y": true}},
		"empty selector": {syncagentv1alpha1.RelatedResourceWatch{BySelector: &metav1.LabelSelector{}}, map[string]bool{"x": true, "y": true}},
		"labels":         {syncagentv1alpha1.RelatedResourceWatch{BySelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "x"}}}, map[string]bool{"x": true, "y": false}},
		"not a selector": {syncagentv1alpha1.RelatedResourceWatch{BySelector: &metav1.LabelSelector{MatchLabels: map[string]string{"/": "x"}}}, map[string]bool{"x": false, "y": false}},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(selectorOf(&test.watch))
			if err != nil {
				t.Fatal(err)
			}
			for value, want := range test.matches {
				if got := selector.Matches(labels.Set{"a": value}); got != want {
					t.Errorf("%s matches: %v, want %v", value, got, want)
				}
			}
		})
	}
}
