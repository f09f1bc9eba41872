package binding

import (
	"fmt"
	"slices"

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

// conflict returns why a resource cannot be served beside others of its group, or "".
func conflict(wanted named, others []named) string {
	for _, other := range others {
		if other.Group != wanted.Group || other.Resource == wanted.Resource {
			continue
		}
		if field, value := clash(wanted.names, other.names); field != "" {
			return fmt.Sprintf("resource %q cannot be bound: its %s %q is in use by %s; delete that, or ask the provider of the export for another name",
				wanted.GroupResource, field, value, other.by)
		}
	}
	return ""
}

// clash returns the first name of a resource that another of its group has, and what kind of name it is.
func clash(wanted, other apiextensionsv1.CustomResourceDefinitionNames) (field, value string) {
	resources := append([]string{other.Plural, other.Singular}, other.ShortNames...)
	kinds := []string{other.Kind, other.ListKind}
	type name struct {
		field, value string
		among        []string
	}
	all := []name{{"plural name", wanted.Plural, resources}, {"singular name", wanted.Singular, resources}}
	for _, short := range wanted.ShortNames {
		all = append(all, name{"short name", short, resources})
	}
	all = append(all, name{"kind", wanted.Kind, kinds}, name{"list kind", wanted.ListKind, kinds})
	for _, name := range all {
		if name.value != "" && slices.Contains(name.among, name.value) {
			return name.field, name.value
		}
	}
	return "", ""
}
