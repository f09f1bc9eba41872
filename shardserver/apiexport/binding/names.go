package binding

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// named is a resource that a logical cluster serves, or is about to.
type named struct {
	schema.GroupResource
	names apiextensionsv1.CustomResourceDefinitionNames
	// by says who brings it, for messages.
	by string
}

// names tells who has which names in a logical cluster. Within a group plural, singular and short names must be
// different, and so must kinds.
type names map[scopedName][]holder

// scopedName is a name of a group, among those of kinds or among those of resources.
type scopedName struct {
	group, name string
	kind        bool
}

type holder struct {
	resource, by string
}

// add takes in what a resource is called.
func (n names) add(of named) {
	for _, name := range called(of.names) {
		scoped := scopedName{of.Group, name.value, name.kind}
		n[scoped] = append(n[scoped], holder{of.Resource, of.by})
	}
}

// conflict returns why a resource cannot be served beside the others, or "". The same resource may have come before,
// under a schema that it has now or had.
func (n names) conflict(wanted named) string {
	for _, name := range called(wanted.names) {
		for _, other := range n[scopedName{wanted.Group, name.value, name.kind}] {
			if other.resource != wanted.Resource {
				return fmt.Sprintf("resource %q cannot be bound: its %s %q is in use by %s; delete that, or ask the provider of the export for another name",
					wanted.GroupResource, name.field, name.value, other.by)
			}
		}
	}
	return ""
}

// name is one of the names of a resource.
type name struct {
	field, value string
	kind         bool
}

// called returns the names of a resource that others of its group cannot have.
func called(of apiextensionsv1.CustomResourceDefinitionNames) []name {
	all := make([]name, 0, 4+len(of.ShortNames))
	add := func(field, value string, kind bool) {
		if value != "" {
			all = append(all, name{field, value, kind})
		}
	}
	add("plural name", of.Plural, false)
	add("singular name", of.Singular, false)
	for _, short := range of.ShortNames {
		add("short name", short, false)
	}
	add("kind", of.Kind, true)
	add("list kind", of.ListKind, true)
	return all
}
