package crdstorage

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/internal/fieldowners"
)

// moveOwners moves the owners of fields in versions that the definition does not have to that of the view, before a write of the object. The
// upstream handler would answer each server-side apply with status 500.
func (v *View) moveOwners(obj runtime.Object) {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok || len(v.versions) == 0 || !v.hasRetiredOwners(object) {
		return
	}
	if moved, err := fieldowners.Move(object.GetManagedFields(), v.version, v.isRetired); err == nil { // else the server rejects them
		object.SetManagedFields(moved)
	}
}

func (v *View) isRetired(version string) bool { return !slices.Contains(v.versions, version) }

// hasRetiredOwners does not decode the owners, which each write of an object would pay for.
func (v *View) hasRetiredOwners(object *unstructured.Unstructured) bool {
	metadata, _ := object.Object["metadata"].(map[string]any)
	owners, _ := metadata["managedFields"].([]any)
	return slices.ContainsFunc(owners, func(owner any) bool {
		entry, _ := owner.(map[string]any)
		apiVersion, _ := entry["apiVersion"].(string)
		parsed, err := schema.ParseGroupVersion(apiVersion)
		return err == nil && parsed.Group == v.version.Group && v.isRetired(parsed.Version)
	})
}
