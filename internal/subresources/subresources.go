// Package subresources distinguishes entries of custom subresources in exports ("<resource>/<subresource>") from those of resources. It
// uses the export only.
package subresources

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// ownSubresources are the subresources that a schema defines, and that the shard serves itself.
var ownSubresources = sets.New("status", "scale")

// Verbs are the verbs that requests for a custom subresource can have, ordered.
var Verbs = []string{"create", "delete", "get", "patch", "update"}

// IsCustom reports whether only an entry of an export can define a subresource.
func IsCustom(subresource string) bool {
	return subresource != "" && !ownSubresources.Has(subresource)
}

// Split returns the resource of an entry of an export, and the subresource if the entry defines a custom subresource. Such entries have
// no objects: nothing is bound, stored or labelled for them.
func Split(entry apisv1alpha2.ResourceSchema) (resource schema.GroupResource, subresource string) {
	name, subresource, _ := strings.Cut(entry.Name, "/")
	return schema.GroupResource{Group: entry.Group, Resource: name}, subresource
}

// IsEntry reports whether an entry of an export is one of a custom subresource.
func IsEntry(entry apisv1alpha2.ResourceSchema) bool {
	return strings.Contains(entry.Name, "/")
}

// Find returns the entry of a custom subresource of an export, or nil.
func Find(export *apisv1alpha2.APIExport, resource schema.GroupResource, subresource string) *apisv1alpha2.ResourceSchema {
	if !IsCustom(subresource) {
		return nil
	}
	for i := range export.Spec.Resources {
		entry := &export.Spec.Resources[i]
		if entry.Storage.Virtual == nil {
			continue
		}
		if gr, sub := Split(*entry); gr == resource && sub == subresource {
			return entry
		}
	}
	return nil
}

// List returns the entries of the custom subresources of a resource, in the order of the export.
func List(export *apisv1alpha2.APIExport, resource schema.GroupResource) []*apisv1alpha2.ResourceSchema {
	var entries []*apisv1alpha2.ResourceSchema
	for i := range export.Spec.Resources {
		entry := &export.Spec.Resources[i]
		if gr, subresource := Split(*entry); gr == resource && IsCustom(subresource) && entry.Storage.Virtual != nil {
			entries = append(entries, entry)
		}
	}
	return entries
}
