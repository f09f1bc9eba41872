package orphans

import (
	"slices"
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

// What is unknown now does not change what was reported before, unless the copy is no candidate any more.
func TestReportsWithUnknownOrphans(t *testing.T) {
	key := func(name string) workspaces.Key { return workspaces.Key{Namespace: "ns", Name: name} }
	a, b, c := key("a"), key("b"), key("c")
	for name, tc := range map[string]struct{ confirmed, before, candidates, want []workspaces.Key }{
		"nothing is known":                     {nil, nil, []workspaces.Key{a}, nil},
		"one is confirmed, another unknown":    {[]workspaces.Key{b}, nil, []workspaces.Key{a, b}, []workspaces.Key{b}},
		"one was an orphan before":             {[]workspaces.Key{c}, []workspaces.Key{a}, []workspaces.Key{a, b, c}, []workspaces.Key{a, c}},
		"one was, and is confirmed":            {[]workspaces.Key{a}, []workspaces.Key{a}, []workspaces.Key{a}, []workspaces.Key{a}},
		"one was, and has a source or is gone": {nil, []workspaces.Key{a}, []workspaces.Key{b}, nil},
	} {
		if got := stillReported(tc.confirmed, tc.before, tc.candidates); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
