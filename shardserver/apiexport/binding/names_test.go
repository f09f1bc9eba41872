package binding

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func newNamedResource(group, plural, singular, kind string, short ...string) namedResource {
	return namedResource{
		GroupResource: schema.GroupResource{Group: group, Resource: plural},
		names:         apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List", ShortNames: short},
		owner:         "somebody",
	}
}

func TestFindConflict(t *testing.T) {
	existing := newNamedResource("example.io", "cats", "cat", "Cat", "c")
	for name, tc := range map[string]struct {
		wanted namedResource
		field  string // "" for none
	}{
		"nothing in common":                     {newNamedResource("example.io", "dogs", "dog", "Dog", "d"), ""},
		"another group":                         {newNamedResource("other.io", "cats", "cat", "Cat"), ""},
		"the same resource in another form":     {newNamedResource("example.io", "cats", "kitty", "Cat"), ""},
		"a plural that is a singular":           {newNamedResource("example.io", "cat", "dog", "Dog"), `plural name "cat"`},
		"a singular that is a short name":       {newNamedResource("example.io", "dogs", "c", "Dog"), `singular name "c"`},
		"a short name that is a plural":         {newNamedResource("example.io", "dogs", "dog", "Dog", "cats"), `short name "cats"`},
		"a short name that is another's too":    {newNamedResource("example.io", "dogs", "dog", "Dog", "c"), `short name "c"`},
		"a kind":                                {newNamedResource("example.io", "dogs", "dog", "Cat"), `kind "Cat"`},
		"a kind that is the kind of a list":     {newNamedResource("example.io", "dogs", "dog", "CatList"), `kind "CatList"`},
		"a kind that is the name of a resource": {newNamedResource("example.io", "dogs", "dog", "cats"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			index := nameIndex{}
			index.add(existing)
			got := index.findConflict(tc.wanted)
			if (got == "") != (tc.field == "") || !strings.Contains(got, tc.field) {
				t.Errorf("got %q, want %q", got, tc.field)
			}
			if got != "" && !strings.Contains(got, "somebody") {
				t.Errorf("%q does not say who", got)
			}
		})
	}
}
