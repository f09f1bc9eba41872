package sync

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

func TestSelectorOfPrimaryObjects(t *testing.T) {
	for name, test := range map[string]struct {
		watch   syncagentv1alpha1.RelatedResourceWatch
		matches map[string]bool // by the value of a label
	}{
		"by owner":       {syncagentv1alpha1.RelatedResourceWatch{ByOwner: &syncagentv1alpha1.RelatedResourceWatchByOwner{}}, map[string]bool{"x": true, "y": true}},
		"empty selector": {syncagentv1alpha1.RelatedResourceWatch{BySelector: &metav1.LabelSelector{}}, map[string]bool{"x": true, "y": true}},
		"labels":         {syncagentv1alpha1.RelatedResourceWatch{BySelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "x"}}}, map[string]bool{"x": true, "y": false}},
		"dotted key":     {syncagentv1alpha1.RelatedResourceWatch{BySelector: &metav1.LabelSelector{MatchLabels: map[string]string{"b.example.org/c": "d"}}}, map[string]bool{"x": true}},
		"no such label":  {syncagentv1alpha1.RelatedResourceWatch{BySelector: &metav1.LabelSelector{MatchLabels: map[string]string{"e": "x"}}}, map[string]bool{"x": false}},
		"not a selector": {syncagentv1alpha1.RelatedResourceWatch{BySelector: &metav1.LabelSelector{MatchLabels: map[string]string{"/": "x"}}}, map[string]bool{"x": false, "y": false}},
	} {
		t.Run(name, func(t *testing.T) {
			selector := selectorOf(&test.watch)
			for value, want := range test.matches {
				primary := []byte(`{"metadata":{"name":"x","labels":{"a":"` + value + `","b.example.org/c":"d"}},"spec":{"metadata":{"labels":{"a":"x"}}}}`)
				if got := matchesLabels(primary, selector); got != want {
					t.Errorf("%s matches: %v, want %v", value, got, want)
				}
			}
		})
	}
}
