package customresourcedefinitions

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/util/sets"
)

// nameSet has names that must be unique in a group: those of resources, and those of kinds.
type nameSet struct{ resources, kinds sets.Set[string] }

// acceptedNamesExcept returns the accepted names of all definitions but one.
func acceptedNamesExcept(group []*apiextensions.CustomResourceDefinition, excluded string) nameSet {
	t := nameSet{sets.New[string](), sets.New[string]()}
	for _, definition := range group {
		if definition.Name != excluded {
			t.add(definition.Status.AcceptedNames)
		}
	}
	return t
}

func (n nameSet) add(names apiextensions.CustomResourceDefinitionNames) {
	for _, resource := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
		if resource != "" {
			n.resources.Insert(resource)
		}
	}
	for _, kind := range []string{names.Kind, names.ListKind} {
		if kind != "" {
			n.kinds.Insert(kind)
		}
	}
}

// hasContention returns whether another definition of the group requests or has a name that this one requests. Without
// contention a stale cache cannot lead to conflicting names.
func hasContention(definition *apiextensions.CustomResourceDefinition, group []*apiextensions.CustomResourceDefinition) bool {
	others := acceptedNamesExcept(group, definition.Name)
	for _, other := range group {
		if other.Name != definition.Name {
			others.add(other.Spec.Names)
		}
	}
	requested := nameSet{sets.New[string](), sets.New[string]()}
	requested.add(definition.Spec.Names)
	return requested.resources.HasAny(others.resources.UnsortedList()...) || requested.kinds.HasAny(others.kinds.UnsortedList()...)
}

// nameConflict is the reason why a name is not accepted.
type nameConflict struct {
	reason string
	err    error
}

// acceptNames returns the accepted names of a definition: each requested name that no other definition has, else the
// currently accepted one. Like upstream it returns the last conflict.
func acceptNames(requested, current apiextensions.CustomResourceDefinitionNames, others nameSet) (apiextensions.CustomResourceDefinitionNames, *nameConflict) {
	accepted := current
	var conflict *nameConflict
	for _, name := range []struct {
		reason    string
		requested string
		accepted  *string
		others    sets.Set[string]
	}{
		{"PluralConflict", requested.Plural, &accepted.Plural, others.resources},
		{"SingularConflict", requested.Singular, &accepted.Singular, others.resources},
	} {
		conflict = acceptName(name.reason, name.requested, name.accepted, name.others, conflict)
	}
	var inUseErrs []error
	for _, short := range requested.ShortNames {
		if !slices.Contains(current.ShortNames, short) && others.resources.Has(short) {
			inUseErrs = append(inUseErrs, inUse(short))
		}
	}
	if len(inUseErrs) > 0 {
		conflict = &nameConflict{"ShortNamesConflict", errors.Join(inUseErrs...)}
	} else {
		accepted.ShortNames = requested.ShortNames
	}
	conflict = acceptName("KindConflict", requested.Kind, &accepted.Kind, others.kinds, conflict)
	conflict = acceptName("ListKindConflict", requested.ListKind, &accepted.ListKind, others.kinds, conflict)
	accepted.Categories = requested.Categories
	return accepted, conflict
}

// acceptName sets a name if no other definition has it, else it returns a conflict.
func acceptName(reason, requested string, accepted *string, others sets.Set[string], previous *nameConflict) *nameConflict {
	if requested != *accepted && others.Has(requested) {
		return &nameConflict{reason, inUse(requested)}
	}
	*accepted = requested
	return previous
}

func inUse(name string) error { return fmt.Errorf("%q is already in use", name) }
