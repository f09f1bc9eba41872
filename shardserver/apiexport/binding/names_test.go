package binding

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func calls(group, plural, singular, kind string, short ...string) namedResource {
	return namedResource{
		GroupResource: schema.GroupResource{Group: group, Resource: plural},
		names:         apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List", ShortNames: short},
		owner:         "somebody",
	}
}

func TestConflict(t *testing.T) {
	cats := calls("example.io", "cats", "cat", "Cat", "c")
	for name, tc := range map[string]struct {
		wanted namedResource
		field  string // "" for none
	}{
		"nothing in common":                     {calls("example.io", "dogs", "dog", "Dog", "d"), ""},
		"another group":                         {calls("other.io", "cats", "cat", "Cat"), ""},
		"the same resource in another form":     {calls("example.io", "cats", "kitty", "Cat"), ""},
		"a plural that is a singular":           {calls("example.io", "cat", "dog", "Dog"), `plural name "cat"`},
		"a singular that is a short name":       {calls("example.io", "dogs", "c", "Dog"), `singular name "c"`},
		"a short name that is a plural":         {calls("example.io", "dogs", "dog", "Dog", "cats"), `short name "cats"`},
		"a short name that is another's too":    {calls("example.io", "dogs", "dog", "Dog", "c"), `short name "c"`},
		"a kind":                                {calls("example.io", "dogs", "dog", "Cat"), `kind "Cat"`},
		"a kind that is the kind of a list":     {calls("example.io", "dogs", "dog", "CatList"), `kind "CatList"`},
		"a kind that is the name of a resource": {calls("example.io", "dogs", "dog", "cats"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			taken := nameIndex{}
			taken.add(cats)
			got := taken.findConflict(tc.wanted)
			if (got == "") != (tc.field == "") || !strings.Contains(got, tc.field) {
				t.Errorf("got %q, want %q", got, tc.field)
			}
			if got != "" && !strings.Contains(got, "somebody") {
				t.Errorf("%q does not say who", got)
			}
		})
	}
}
