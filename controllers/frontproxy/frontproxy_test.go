package frontproxy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
)

func TestNames(t *testing.T) {
	for sentence, tc := range map[string]struct {
		front, root string
		text        string // "" is fine
	}{
		"ordinary names":            {"main", "root", ""},
		"the internal proxy's name": {"proxy", "root", "recreate it under another name"},
		"the longest names":         {strings.Repeat("f", 20), strings.Repeat("r", 23), ""},
		"one character too many":    {strings.Repeat("f", 21), strings.Repeat("r", 23), "have 44 characters together and may have 43"},
	} {
		t.Run(sentence, func(t *testing.T) {
			finding := checkNames(
				&operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: tc.front}},
				&operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: tc.root}})
			if (finding.Kind == status.Fine) != (tc.text == "") || !strings.Contains(finding.Message, tc.text) {
				t.Errorf("got %+v", finding)
			}
		})
	}
}
