package binding

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// namedResource is a resource that a logical cluster serves or is about to serve.
type namedResource struct {
	schema.GroupResource
	names apiextensionsv1.CustomResourceDefinitionNames
	// owner describes the binding or definition of the resource in messages.
	owner string
}

// nameIndex maps names to the resources of a logical cluster that use them. Within a group, plural, singular and short
// names must be unique, and so must kinds and list kinds.
type nameIndex map[scopedName][]nameOwner

// scopedName is a name within a group, either of kinds or of resources.
type scopedName struct {
	group, name string
	kind        bool
}

type nameOwner struct {
	resource, owner string
}

// add indexes all names of a resource.
func (n nameIndex) add(resource namedResource) {
	for _, name := range claimedNames(resource.names) {
		scoped := scopedName{resource.Group, name.value, name.kind}
		n[scoped] = append(n[scoped], nameOwner{resource.Resource, resource.owner})
	}
}

// findConflict returns a message if another resource uses a name of the wanted one, else "". Entries of the same
// resource, from other versions of its schema, do not conflict.
func (n nameIndex) findConflict(candidate namedResource) string {
	for _, name := range claimedNames(candidate.names) {
		for _, other := range n[scopedName{candidate.Group, name.value, name.kind}] {
			if other.resource != candidate.Resource {
				return fmt.Sprintf("resource %q cannot be bound: its %s %q is in use by %s; delete that, or ask the provider of the export for another name",
					candidate.GroupResource, name.field, name.value, other.owner)
			}
		}
	}
	return ""
}

// claimedName is one of the names of a resource.
type claimedName struct {
	field, value string
	kind         bool
}

// claimedNames returns the names of a resource that must be unique in its group.
func claimedNames(names apiextensionsv1.CustomResourceDefinitionNames) []claimedName {
	all := make([]claimedName, 0, 4+len(names.ShortNames))
	add := func(field, value string, kind bool) {
		if value != "" {
			all = append(all, claimedName{field, value, kind})
		}
	}
	add("plural name", names.Plural, false)
	add("singular name", names.Singular, false)
	for _, short := range names.ShortNames {
		add("short name", short, false)
	}
	add("kind", names.Kind, true)
	add("list kind", names.ListKind, true)
	return all
}
