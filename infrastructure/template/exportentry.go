package template

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// entryChange changes the resources of an export, and reports whether it changed anything.
type entryChange func(*[]apisv1alpha2.ResourceSchema) bool

// SetEntry sets the entry of a resource and group, and reports whether that changed anything. It preserves all other entries.
func SetEntry(entries *[]apisv1alpha2.ResourceSchema, entry apisv1alpha2.ResourceSchema) bool {
	i := slices.IndexFunc(*entries, isEntryOf(entry.Name, entry.Group))
	if i < 0 {
		*entries = append(*entries, entry)
		return true
	}
	changed := !equality.Semantic.DeepEqual((*entries)[i], entry)
	(*entries)[i] = entry
	return changed
}

// entryOf returns the export entry of a Template with a schema.
func entryOf(t *infrastructurev1alpha1.Template, schema *apisv1alpha1.APIResourceSchema) apisv1alpha2.ResourceSchema {
	names := t.Spec.InstanceCRD
	return apisv1alpha2.ResourceSchema{Name: names.Resource, Group: names.Group, Schema: schema.Name,
		Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}}}
}

// setEntry returns a change that sets an entry.
func setEntry(entry apisv1alpha2.ResourceSchema) entryChange {
	return func(entries *[]apisv1alpha2.ResourceSchema) bool { return SetEntry(entries, entry) }
}

// unlisted returns a change that removes the entry of a resource.
func unlisted(resource, group string) entryChange {
	return func(entries *[]apisv1alpha2.ResourceSchema) bool {
		before := len(*entries)
		*entries = slices.DeleteFunc(*entries, isEntryOf(resource, group))
		return len(*entries) != before
	}
}

// unlistedSchemas returns a change that removes the entries with these schemas.
func unlistedSchemas(schemas []apisv1alpha1.APIResourceSchema) entryChange {
	return func(entries *[]apisv1alpha2.ResourceSchema) bool {
		before := len(*entries)
		*entries = slices.DeleteFunc(*entries, func(entry apisv1alpha2.ResourceSchema) bool {
			return slices.ContainsFunc(schemas, func(schema apisv1alpha1.APIResourceSchema) bool { return schema.Name == entry.Schema })
		})
		return len(*entries) != before
	}
}

func isEntryOf(resource, group string) func(apisv1alpha2.ResourceSchema) bool {
	return func(entry apisv1alpha2.ResourceSchema) bool { return entry.Name == resource && entry.Group == group }
}

// changedEntries returns the resources of a group whose entries differ between two states of an export.
func changedEntries(before, after []apisv1alpha2.ResourceSchema, group string) []string {
	former := map[string]apisv1alpha2.ResourceSchema{}
	for _, entry := range before {
		if entry.Group == group {
			former[entry.Name] = entry
		}
	}
	var changed []string
	for _, entry := range after {
		if entry.Group != group {
			continue
		}
		if known, ok := former[entry.Name]; !ok || !equality.Semantic.DeepEqual(known, entry) {
			changed = append(changed, entry.Name)
		}
		delete(former, entry.Name)
	}
	return append(changed, slices.Sorted(maps.Keys(former))...)
}
