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
		owner:         "APIBinding \"other\"",
	}
}

func TestFindConflict(t *testing.T) {
	existing := newNamedResource("example.io", "cats", "cat", "Cat", "c")
	for name, tc := range map[string]struct {
		wanted namedResource
		field  string // "" for none
	}{
		"different names":                            {newNamedResource("example.io", "dogs", "dog", "Dog", "d"), ""},
		"another group":                              {newNamedResource("other.io", "cats", "cat", "Cat"), ""},
		"the same resource with other names":         {newNamedResource("example.io", "cats", "kitty", "Cat"), ""},
		"plural equals a singular":                   {newNamedResource("example.io", "cat", "dog", "Dog"), `plural name "cat"`},
		"singular equals a short name":               {newNamedResource("example.io", "dogs", "c", "Dog"), `singular name "c"`},
		"short name equals a plural":                 {newNamedResource("example.io", "dogs", "dog", "Dog", "cats"), `short name "cats"`},
		"equal short names":                          {newNamedResource("example.io", "dogs", "dog", "Dog", "c"), `short name "c"`},
		"equal kinds":                                {newNamedResource("example.io", "dogs", "dog", "Cat"), `kind "Cat"`},
		"kind equals a list kind":                    {newNamedResource("example.io", "dogs", "dog", "CatList"), `kind "CatList"`},
		"kind equals the plural of another resource": {newNamedResource("example.io", "dogs", "dog", "cats"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			index := nameIndex{}
			index.add(existing)
			got := index.findConflict(tc.wanted)
			if (got == "") != (tc.field == "") || !strings.Contains(got, tc.field) {
				t.Errorf("got %q, want %q", got, tc.field)
			}
			if got != "" && !strings.Contains(got, "APIBinding \"other\"") {
				t.Errorf("%q does not name the owner", got)
			}
		})
	}
}
