package orphans

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// A copy that does not certainly belong to a publication is not an orphan of that publication.
func TestOrphansAreOfTheirPublication(t *testing.T) {
	resource := workspaces.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "a.io", Version: "v1", Kind: "Widget"}, Resource: "widgets"}
	f := NewFinder(Config{Resource: resource})
	for resource, want := range map[string]bool{"widgets.a.io": true, "widgets.b.io": false, "": false} {
		copied := &metav1.ObjectMeta{}
		if resource != "" {
			copied.Labels = map[string]string{publication.LabelRemoteResource: expression.ShortHash(resource)}
			copied.Annotations = map[string]string{publication.AnnotationRemoteResource: resource}
		}
		if got := f.isOwn(copied); got != want {
			t.Errorf("a copy of %q: got %v", resource, got)
		}
	}
}
