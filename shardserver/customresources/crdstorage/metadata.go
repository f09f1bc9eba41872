package crdstorage

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// findRawField returns the JSON of a field of the metadata, empty if it is missing.
func (o *Object) findRawField(name string) string {
	if o.stored == nil || o.stored.metadata == 0 {
		return ""
	}
	s := scanner{text: o.stored.json, pos: int(o.stored.metadata) - 1}
	var found string
	_ = s.scanMembers(1, func(key string) error { // the object was scanned before
		start := s.pos
		err := s.skipValue(1)
		if key[1:len(key)-1] == name {
			found = s.text[start:s.pos]
		}
		return err
	})
	return found
}

// decodeField decodes a field of the metadata; a missing or malformed one leaves the zero value.
func decodeField[T any](o *Object, name string) T {
	var value, zero T
	if text := o.findRawField(name); text == "" || utiljson.Unmarshal([]byte(text), &value) != nil {
		return zero
	}
	return value
}

// hasFlag returns whether the object has one of the optional fields.
func (o *Object) hasFlag(flag fieldFlags) bool { return o.stored != nil && o.stored.flags&flag != 0 }

// GetAnnotations implements metav1.Object.
func (o *Object) GetAnnotations() map[string]string {
	text := o.findRawField("annotations")
	if text == "" {
		return nil
	}
	var annotations map[string]string
	s := scanner{text: text}
	_ = s.scanStrings(0, func(key, value string) { // the object was scanned before
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
	})
	return annotations
}

// GetOwnerReferences implements metav1.Object. It is cheap for an object without owners.
func (o *Object) GetOwnerReferences() []metav1.OwnerReference {
	if !o.hasFlag(hasOwnerReferences) {
		return nil
	}
	return decodeField[[]metav1.OwnerReference](o, "ownerReferences")
}

// GetFinalizers implements metav1.Object. It is cheap for an object without finalizers.
func (o *Object) GetFinalizers() []string {
	if !o.hasFlag(hasFinalizers) {
		return nil
	}
	return decodeField[[]string](o, "finalizers")
}

// GetDeletionTimestamp implements metav1.Object. It is cheap for an object that is not being deleted.
func (o *Object) GetDeletionTimestamp() *metav1.Time {
	if !o.hasFlag(hasDeletionTimestamp) {
		return nil
	}
	return decodeField[*metav1.Time](o, "deletionTimestamp")
}

// GetDeletionGracePeriodSeconds implements metav1.Object.
func (o *Object) GetDeletionGracePeriodSeconds() *int64 {
	return decodeField[*int64](o, "deletionGracePeriodSeconds")
}

// GetCreationTimestamp implements metav1.Object.
func (o *Object) GetCreationTimestamp() metav1.Time {
	return decodeField[metav1.Time](o, "creationTimestamp")
}

// GetGeneration implements metav1.Object.
func (o *Object) GetGeneration() int64 { return decodeField[int64](o, "generation") }

// GetGenerateName implements metav1.Object.
func (o *Object) GetGenerateName() string { return decodeField[string](o, "generateName") }

// GetManagedFields implements metav1.Object.
func (o *Object) GetManagedFields() []metav1.ManagedFieldsEntry {
	return decodeField[[]metav1.ManagedFieldsEntry](o, "managedFields")
}

// GetSelfLink implements metav1.Object. It is not stored.
func (o *Object) GetSelfLink() string { return "" }

// SetSelfLink implements metav1.Object. It is not stored.
func (o *Object) SetSelfLink(string) {}

// SetName implements metav1.Object.
func (o *Object) SetName(name string) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetName(name) })
}

// SetNamespace implements metav1.Object.
func (o *Object) SetNamespace(namespace string) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetNamespace(namespace) })
}

// SetUID implements metav1.Object.
func (o *Object) SetUID(uid types.UID) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetUID(uid) })
}

// SetLabels implements metav1.Object.
func (o *Object) SetLabels(labels map[string]string) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetLabels(labels) })
}

// SetAnnotations implements metav1.Object.
func (o *Object) SetAnnotations(annotations map[string]string) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetAnnotations(annotations) })
}

// SetOwnerReferences implements metav1.Object.
func (o *Object) SetOwnerReferences(owners []metav1.OwnerReference) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetOwnerReferences(owners) })
}

// SetFinalizers implements metav1.Object.
func (o *Object) SetFinalizers(finalizers []string) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetFinalizers(finalizers) })
}

// SetDeletionTimestamp implements metav1.Object.
func (o *Object) SetDeletionTimestamp(timestamp *metav1.Time) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetDeletionTimestamp(timestamp) })
}

// SetDeletionGracePeriodSeconds implements metav1.Object.
func (o *Object) SetDeletionGracePeriodSeconds(seconds *int64) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetDeletionGracePeriodSeconds(seconds) })
}

// SetCreationTimestamp implements metav1.Object.
func (o *Object) SetCreationTimestamp(timestamp metav1.Time) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetCreationTimestamp(timestamp) })
}

// SetGeneration implements metav1.Object.
func (o *Object) SetGeneration(generation int64) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetGeneration(generation) })
}

// SetGenerateName implements metav1.Object.
func (o *Object) SetGenerateName(name string) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetGenerateName(name) })
}

// SetManagedFields implements metav1.Object.
func (o *Object) SetManagedFields(fields []metav1.ManagedFieldsEntry) {
	o.mutate(func(obj *unstructured.Unstructured) { obj.SetManagedFields(fields) })
}
