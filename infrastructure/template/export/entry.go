// Package export writes the entries of Templates in APIExports.
package export

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// Change changes the resources of an export, and reports whether it changed anything.
type Change func(*[]apisv1alpha2.ResourceSchema) bool

// SetEntry sets the entry of a resource and group, and reports whether that changed anything. It preserves all other entries.
func SetEntry(entries *[]apisv1alpha2.ResourceSchema, entry apisv1alpha2.ResourceSchema) bool {
	i := slices.IndexFunc(*entries, IsEntryOf(entry.Name, entry.Group))
	if i < 0 {
		*entries = append(*entries, entry)
		return true
	}
	changed := !equality.Semantic.DeepEqual((*entries)[i], entry)
	(*entries)[i] = entry
	return changed
}

// EntryOf returns the export entry of a Template with a schema.
func EntryOf(t *infrastructurev1alpha1.Template, schema *apisv1alpha1.APIResourceSchema) apisv1alpha2.ResourceSchema {
	names := t.Spec.InstanceCRD
	return apisv1alpha2.ResourceSchema{Name: names.Resource, Group: names.Group, Schema: schema.Name,
		Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}}}
}

// Set returns a change that sets an entry.
func Set(entry apisv1alpha2.ResourceSchema) Change {
	return func(entries *[]apisv1alpha2.ResourceSchema) bool { return SetEntry(entries, entry) }
}

// Unlisted returns a change that removes the entry of a resource.
func Unlisted(resource, group string) Change {
	return func(entries *[]apisv1alpha2.ResourceSchema) bool {
		before := len(*entries)
		*entries = slices.DeleteFunc(*entries, IsEntryOf(resource, group))
		return len(*entries) != before
	}
}

// UnlistedSchemas returns a change that removes the entries with these schemas.
func UnlistedSchemas(schemas []apisv1alpha1.APIResourceSchema) Change {
	return func(entries *[]apisv1alpha2.ResourceSchema) bool {
		before := len(*entries)
		*entries = slices.DeleteFunc(*entries, func(entry apisv1alpha2.ResourceSchema) bool {
			return slices.ContainsFunc(schemas, func(schema apisv1alpha1.APIResourceSchema) bool { return schema.Name == entry.Schema })
		})
		return len(*entries) != before
	}
}

// IsEntryOf reports whether an entry is of a resource and group.
func IsEntryOf(resource, group string) func(apisv1alpha2.ResourceSchema) bool {
	return func(entry apisv1alpha2.ResourceSchema) bool { return entry.Name == resource && entry.Group == group }
}

// ChangedEntries returns the resources of a group whose entries differ between two states of an export.
func ChangedEntries(before, after []apisv1alpha2.ResourceSchema, group string) []string {
	previous := map[string]apisv1alpha2.ResourceSchema{}
	for _, entry := range before {
		if entry.Group == group {
			previous[entry.Name] = entry
		}
	}
	var changed []string
	for _, entry := range after {
		if entry.Group != group {
			continue
		}
		if known, ok := previous[entry.Name]; !ok || !equality.Semantic.DeepEqual(known, entry) {
			changed = append(changed, entry.Name)
		}
		delete(previous, entry.Name)
	}
	return append(changed, slices.Sorted(maps.Keys(previous))...)
}
