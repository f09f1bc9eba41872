// Package fieldowners moves the owners of fields, metadata.managedFields, from versions of a kind that no longer exist to one that does.
package fieldowners

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Move returns managed fields in which a version replaces retired ones of its group. A server converts an object to the version of each
// manager at server-side apply, and fails if the version does not exist. Paths that the version does not have are no error. The entries of a
// manager of both versions become one entry with the union of their fields.
func Move(owners []metav1.ManagedFieldsEntry, to schema.GroupVersion, isRetired func(version string) bool) ([]metav1.ManagedFieldsEntry, error) {
	var moved []metav1.ManagedFieldsEntry
	current := to.String()
	for _, owner := range owners {
		if parsed, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && parsed.Group == to.Group && isRetired(parsed.Version) {
			owner.APIVersion = current
		}
		at := slices.IndexFunc(moved, func(other metav1.ManagedFieldsEntry) bool {
			return other.Manager == owner.Manager && other.Operation == owner.Operation && other.Subresource == owner.Subresource && other.APIVersion == owner.APIVersion
		})
		if at < 0 || owner.APIVersion != current {
			moved = append(moved, owner)
			continue
		}
		union, err := unionOf(moved[at].FieldsV1, owner.FieldsV1)
		if err != nil {
			return nil, err
		}
		moved[at].FieldsV1 = union
		if moved[at].Time.Before(owner.Time) {
			moved[at].Time = owner.Time
		}
	}
	return moved, nil
}

func unionOf(a, b *metav1.FieldsV1) (*metav1.FieldsV1, error) {
	union := &fieldpath.Set{}
	for _, fields := range []*metav1.FieldsV1{a, b} {
		if fields == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(fields.GetRawReader()); err != nil {
			return nil, err
		}
		union = union.Union(set)
	}
	raw, err := union.ToJSON()
	if err != nil {
		return nil, err
	}
	return metav1.NewFieldsV1(string(raw)), nil
}
