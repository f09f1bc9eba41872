package restoredrill

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// nameLabel is a label that the API server adds to each namespace. A client that creates a namespace by other means than applying owns it.
var nameLabel = fieldpath.MakePathOrDie("metadata", "labels", corev1.LabelMetadataName)

// isForeign reports whether somebody else than a field manager, who has applied a namespace, may have created it. That controllers add labels
// and annotations to each namespace is no sign of that.
func isForeign(object *corev1.Namespace, manager string) bool {
	var own *metav1.Time
	for _, entry := range object.ManagedFields {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply {
			own = entry.Time
		}
	}
	if own == nil || object.CreationTimestamp.Before(own) { // who creates an object has applied it before the API server stores it
		return true
	}
	return slices.ContainsFunc(object.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		switch {
		case entry.Manager == manager, entry.Subresource != "":
			return false
		case entry.Operation == metav1.ManagedFieldsOperationApply: // a client that creates by applying owns no such field
			return !own.Before(entry.Time)
		}
		return isCreator(entry.FieldsV1)
	})
}

// isCreator reports whether fields are not only labels and annotations that were added later.
func isCreator(fields *metav1.FieldsV1) bool {
	set := &fieldpath.Set{}
	if fields == nil || set.FromJSON(fields.GetRawReader()) != nil {
		return true
	}
	out := false
	set.Iterate(func(path fieldpath.Path) {
		out = out || path[0].FieldName == nil || *path[0].FieldName != "metadata" || path.Equals(nameLabel)
	})
	return out
}
