package instance

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestFailures(t *testing.T) {
	resource := schema.GroupResource{Group: "example.org", Resource: "databases"}
	refused := apierrors.NewForbidden(resource, "secret-name", errors.New("text of a tenant"))
	unreachable := errors.New("text of a proxy")
	f := &failures{}
	if err := f.error(); err != nil {
		t.Errorf("without failures: %v", err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "secret-name"}}}
	for _, step := range []struct {
		cluster string
		err     error
		due     bool
	}{
		{"one", refused, true},
		{"one", nil, true},
		{"one", refused, true},
		{"one", refused, true},
		{"one", unreachable, true},
		{"one", nil, false}, // after three consecutive failures
		{"one", nil, false},
		{"two", nil, true},
		{"two", refused, true},
	} {
		cluster := logicalcluster.MustParseName(step.cluster)
		due := f.isDue(cluster)
		if due != step.due {
			t.Errorf("an instance of %s is due: %t", step.cluster, due)
		}
		if due {
			f.note(t.Context(), object, step.err)
		}
	}
	const want = "7 instances could not be written (Forbidden: 4, no answer: 1, not tried after others of their workspaces: 2); the log of the provider names them"
	if got := f.error(); got == nil || got.Error() != want {
		t.Errorf("got %q, want %q", got, want)
	} else if strings.Contains(got.Error(), "secret-name") || strings.Contains(got.Error(), "text of") {
		t.Errorf("conditions would have %q", got)
	}
}
