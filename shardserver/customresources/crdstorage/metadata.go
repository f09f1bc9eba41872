package crdstorage

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// field returns the JSON of a field of the metadata, empty if it is missing.
func (o *Object) field(name string) string {
	if o.stored == nil || o.stored.metadata == 0 {
		return ""
	}
	s := scanner{text: o.stored.json, pos: int(o.stored.metadata) - 1}
	var found string
	_ = s.members(1, func(key string) error { // the object was scanned before
		start := s.pos
		err := s.value(1)
		if key[1:len(key)-1] == name {
			found = s.text[start:s.pos]
		}
		return err
	})
	return found
}

// fieldInto decodes a field of the metadata; a missing or malformed one leaves the zero value.
func fieldInto[T any](o *Object, name string) T {
	var value, none T
	if text := o.field(name); text == "" || utiljson.Unmarshal([]byte(text), &value) != nil {
		return none
	}
	return value
}

// has returns whether the object has one of the optional fields.
func (o *Object) has(flag fieldFlags) bool { return o.stored != nil && o.stored.has&flag != 0 }

// GetAnnotations implements metav1.Object.
func (o *Object) GetAnnotations() map[string]string {
	text := o.field("annotations")
	if text == "" {
		return nil
	}
	var annotations map[string]string
	s := scanner{text: text}
	_ = s.strings(0, func(key, value string) { // the object was scanned before
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
	})
	return annotations
}

// GetOwnerReferences implements metav1.Object. It is cheap for an object without owners.
func (o *Object) GetOwnerReferences() []metav1.OwnerReference {
	if !o.has(hasOwnerReferences) {
		return nil
	}
	return fieldInto[[]metav1.OwnerReference](o, "ownerReferences")
}

// GetFinalizers implements metav1.Object. It is cheap for an object without finalizers.
func (o *Object) GetFinalizers() []string {
	if !o.has(hasFinalizers) {
		return nil
	}
	return fieldInto[[]string](o, "finalizers")
}

// GetDeletionTimestamp implements metav1.Object. It is cheap for an object that is not being deleted.
func (o *Object) GetDeletionTimestamp() *metav1.Time {
	if !o.has(hasDeletionTimestamp) {
		return nil
	}
	return fieldInto[*metav1.Time](o, "deletionTimestamp")
}

// GetDeletionGracePeriodSeconds implements metav1.Object.
func (o *Object) GetDeletionGracePeriodSeconds() *int64 {
	return fieldInto[*int64](o, "deletionGracePeriodSeconds")
}

// GetCreationTimestamp implements metav1.Object.
func (o *Object) GetCreationTimestamp() metav1.Time {
	return fieldInto[metav1.Time](o, "creationTimestamp")
}

// GetGeneration implements metav1.Object.
func (o *Object) GetGeneration() int64 { return fieldInto[int64](o, "generation") }

// GetGenerateName implements metav1.Object.
func (o *Object) GetGenerateName() string { return fieldInto[string](o, "generateName") }

// GetManagedFields implements metav1.Object.
func (o *Object) GetManagedFields() []metav1.ManagedFieldsEntry {
	return fieldInto[[]metav1.ManagedFieldsEntry](o, "managedFields")
}

// GetSelfLink implements metav1.Object. It is not stored.
func (o *Object) GetSelfLink() string { return "" }

// SetSelfLink implements metav1.Object. It is not stored.
func (o *Object) SetSelfLink(string) {}

// SetName implements metav1.Object.
func (o *Object) SetName(name string) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetName(name) })
}

// SetNamespace implements metav1.Object.
func (o *Object) SetNamespace(namespace string) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetNamespace(namespace) })
}

// SetUID implements metav1.Object.
func (o *Object) SetUID(uid types.UID) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetUID(uid) })
}

// SetLabels implements metav1.Object.
func (o *Object) SetLabels(labels map[string]string) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetLabels(labels) })
}

// SetAnnotations implements metav1.Object.
func (o *Object) SetAnnotations(annotations map[string]string) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetAnnotations(annotations) })
}

// SetOwnerReferences implements metav1.Object.
func (o *Object) SetOwnerReferences(owners []metav1.OwnerReference) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetOwnerReferences(owners) })
}

// SetFinalizers implements metav1.Object.
func (o *Object) SetFinalizers(finalizers []string) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetFinalizers(finalizers) })
}

// SetDeletionTimestamp implements metav1.Object.
func (o *Object) SetDeletionTimestamp(timestamp *metav1.Time) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetDeletionTimestamp(timestamp) })
}

// SetDeletionGracePeriodSeconds implements metav1.Object.
func (o *Object) SetDeletionGracePeriodSeconds(seconds *int64) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetDeletionGracePeriodSeconds(seconds) })
}

// SetCreationTimestamp implements metav1.Object.
func (o *Object) SetCreationTimestamp(timestamp metav1.Time) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetCreationTimestamp(timestamp) })
}

// SetGeneration implements metav1.Object.
func (o *Object) SetGeneration(generation int64) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetGeneration(generation) })
}

// SetGenerateName implements metav1.Object.
func (o *Object) SetGenerateName(name string) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetGenerateName(name) })
}

// SetManagedFields implements metav1.Object.
func (o *Object) SetManagedFields(fields []metav1.ManagedFieldsEntry) {
	o.change(func(obj *unstructured.Unstructured) { obj.SetManagedFields(fields) })
}
