package tenancy

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// TestConfigurationEvent: the names and messages of events are valid, whatever a tenant writes.
func TestConfigurationEvent(t *testing.T) {
	for name, tc := range map[string]struct{ configuration, problems string }{
		"short texts": {"login", "spec.jwt[0]: Required value"},
		"a long name with a dash where it is cut":  {strings.Repeat("a", 199) + "-" + strings.Repeat("b", 50), "x"},
		"a long name with a dot where it is cut":   {strings.Repeat("a", 199) + "." + strings.Repeat("b", 50), "x"},
		"a message that is cut within a character": {"login", strings.Repeat("ü", 1000)},
		"a message that is cut before a character": {"login", "x" + strings.Repeat("ü", 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			event := newConfigurationEvent(&tenancyv1alpha1.WorkspaceAuthenticationConfiguration{ObjectMeta: metav1.ObjectMeta{Name: tc.configuration}}, tc.problems)
			if problems := validation.ValidateConfigMapName(event.Name, false); len(problems) > 0 {
				t.Errorf("the name %q: %v", event.Name, problems)
			}
			if len(event.Message) > maxEventMessage || !utf8.ValidString(event.Message) {
				t.Errorf("the message has %d bytes, valid: %t", len(event.Message), utf8.ValidString(event.Message))
			}
		})
	}
}
