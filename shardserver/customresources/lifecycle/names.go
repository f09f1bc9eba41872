package lifecycle

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/util/sets"
)

// taken are the names that the other definitions of a group have been given, by what must be unique.
type taken struct{ resources, kinds sets.Set[string] }

// takenBy returns the accepted names of all definitions but one.
func takenBy(group []*apiextensions.CustomResourceDefinition, but string) taken {
	t := taken{sets.New[string](), sets.New[string]()}
	for _, definition := range group {
		if definition.Name != but {
			t.add(definition.Status.AcceptedNames)
		}
	}
	return t
}

func (t taken) add(names apiextensions.CustomResourceDefinitionNames) {
	for _, resource := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
		if resource != "" {
			t.resources.Insert(resource)
		}
	}
	for _, kind := range []string{names.Kind, names.ListKind} {
		if kind != "" {
			t.kinds.Insert(kind)
		}
	}
}

// disputed tells whether any other definition of the group wants, or has, a name that this one wants. As long as none
// does, a cache that is behind cannot make a decision wrong.
func disputed(definition *apiextensions.CustomResourceDefinition, group []*apiextensions.CustomResourceDefinition) bool {
	others := takenBy(group, definition.Name)
	for _, other := range group {
		if other.Name != definition.Name {
			others.add(other.Spec.Names)
		}
	}
	own := taken{sets.New[string](), sets.New[string]()}
	own.add(definition.Spec.Names)
	return own.resources.HasAny(others.resources.UnsortedList()...) || own.kinds.HasAny(others.kinds.UnsortedList()...)
}

// conflict is why a name could not be given.
type conflict struct {
	reason string
	err    error
}

// accept returns the names that a definition may have: each wanted one that is free or its own already, and what it had
// where the wanted one is another's. The conflict is the last one met, as stock servers report it.
func accept(wanted, had apiextensions.CustomResourceDefinitionNames, others taken) (apiextensions.CustomResourceDefinitionNames, *conflict) {
	given := had
	var met *conflict
	for _, name := range []struct {
		reason string
		wanted string
		given  *string
		among  sets.Set[string]
	}{
		{"PluralConflict", wanted.Plural, &given.Plural, others.resources},
		{"SingularConflict", wanted.Singular, &given.Singular, others.resources},
	} {
		met = give(name.reason, name.wanted, name.given, name.among, met)
	}
	var refused []error
	for _, short := range wanted.ShortNames {
		if !slices.Contains(had.ShortNames, short) && others.resources.Has(short) {
			refused = append(refused, inUse(short))
		}
	}
	if len(refused) > 0 {
		met = &conflict{"ShortNamesConflict", errors.Join(refused...)}
	} else {
		given.ShortNames = wanted.ShortNames
	}
	met = give("KindConflict", wanted.Kind, &given.Kind, others.kinds, met)
	met = give("ListKindConflict", wanted.ListKind, &given.ListKind, others.kinds, met)
	given.Categories = wanted.Categories
	return given, met
}

// give sets a name if it is free, and returns the conflict if it is not.
func give(reason, wanted string, given *string, among sets.Set[string], before *conflict) *conflict {
	if wanted != *given && among.Has(wanted) {
		return &conflict{reason, inUse(wanted)}
	}
	*given = wanted
	return before
}

func inUse(name string) error { return fmt.Errorf("%q is already in use", name) }
