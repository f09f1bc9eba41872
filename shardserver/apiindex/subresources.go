package apiindex

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// ownSubresources are the subresources that a schema defines, and that the shard serves itself.
var ownSubresources = sets.New("status", "scale")

// SubresourceVerbs are the verbs that requests for a custom subresource can have, ordered.
var SubresourceVerbs = []string{"create", "delete", "get", "patch", "update"}

// IsCustomSubresource reports whether only an entry of an export can define a subresource.
func IsCustomSubresource(subresource string) bool {
	return subresource != "" && !ownSubresources.Has(subresource)
}

// ExportedResource returns the resource of an entry of an export, and the subresource if the entry is one of a custom
// subresource. Such entries have no objects: nothing is bound, stored or labelled for them.
func ExportedResource(entry apisv1alpha2.ResourceSchema) (resource schema.GroupResource, subresource string) {
	name, subresource, _ := strings.Cut(entry.Name, "/")
	return schema.GroupResource{Group: entry.Group, Resource: name}, subresource
}

// IsSubresourceEntry reports whether an entry of an export is one of a custom subresource.
func IsSubresourceEntry(entry apisv1alpha2.ResourceSchema) bool {
	return strings.Contains(entry.Name, "/")
}

// FindSubresource returns the entry of a custom subresource of an export, or nil.
func FindSubresource(export *apisv1alpha2.APIExport, resource schema.GroupResource, subresource string) *apisv1alpha2.ResourceSchema {
	if !IsCustomSubresource(subresource) {
		return nil
	}
	for i := range export.Spec.Resources {
		entry := &export.Spec.Resources[i]
		if entry.Storage.Virtual == nil {
			continue
		}
		if gr, sub := ExportedResource(*entry); gr == resource && sub == subresource {
			return entry
		}
	}
	return nil
}

// ListSubresources returns the entries of the custom subresources of a resource, in the order of the export.
func ListSubresources(export *apisv1alpha2.APIExport, resource schema.GroupResource) []*apisv1alpha2.ResourceSchema {
	var entries []*apisv1alpha2.ResourceSchema
	for i := range export.Spec.Resources {
		entry := &export.Spec.Resources[i]
		if gr, subresource := ExportedResource(*entry); gr == resource && IsCustomSubresource(subresource) && entry.Storage.Virtual != nil {
			entries = append(entries, entry)
		}
	}
	return entries
}
