package syncer

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The content of an object is what is synced from a source to its copy: all fields at the top level except those in notContent, and the
// syncable labels and annotations. It is normalized: equal numbers have one type, and null fields are left out, because a merge patch
// cannot set them.

// notContent are fields at the top level that are not part of the content. The status is synced separately, in the other direction.
var notContent = map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "status": true}

// contentOf returns the content of an object.
func contentOf(object *unstructured.Unstructured) map[string]any {
	content := map[string]any{}
	for key, value := range object.Object {
		if !notContent[key] && value != nil {
			content[key] = normalize(value)
		}
	}
	content["metadata"] = map[string]any{
		"labels":      syncable(object.GetLabels(), isSyncableLabel),
		"annotations": syncable(object.GetAnnotations(), isSyncableAnnotation),
	}
	return content
}

func syncable(values map[string]string, accept func(key string) bool) map[string]any {
	result := map[string]any{}
	for key, value := range values {
		if accept(key) {
			result[key] = value
		}
	}
	return result
}

// normalize returns a copy of a JSON value in which equal values are deeply equal.
func normalize(value any) any {
	switch v := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(v))
		for key, field := range v {
			if field != nil {
				result[key] = normalize(field)
			}
		}
		return result
	case []any:
		result := make([]any, len(v))
		for i := range v {
			result[i] = normalize(v[i])
		}
		return result
	case int:
		return int64(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= 1<<53 {
			return int64(v)
		}
	}
	return value
}

// equal compares JSON values. An empty object equals a missing one.
func equal(a, b any) bool {
	a, b = normalize(a), normalize(b)
	return isEmpty(a) && isEmpty(b) || reflect.DeepEqual(a, b)
}

func isEmpty(value any) bool {
	m, isMap := value.(map[string]any)
	return value == nil || isMap && len(m) == 0
}

// contentPatch returns the JSON merge patch from one content to another. It removes labels and annotations one by one, because a copy has
// additional ones.
func contentPatch(from, to map[string]any) map[string]any {
	return mergePatch(withMetadata(from), withMetadata(to))
}

// repeatPatch returns a patch that sets the fields of another patch to their values in a content.
func repeatPatch(patch, content map[string]any) map[string]any {
	result := map[string]any{}
	for key, value := range patch {
		fields, isMap := value.(map[string]any)
		current, exists := content[key]
		currentFields, currentIsMap := current.(map[string]any)
		switch {
		case !exists:
			result[key] = nil
		case isMap && currentIsMap:
			result[key] = repeatPatch(fields, currentFields)
		default:
			result[key] = current
		}
	}
	return result
}

// unionFields returns the union of two patches, or nil if one patch sets fields of an object that the other replaces or removes: these
// cannot be combined field by field. If both patches lead to the same content, the union does what both do.
func unionFields(patch, other map[string]any) map[string]any {
	result := map[string]any{}
	maps.Copy(result, patch)
	for key, value := range other {
		existing, exists := result[key]
		fields, isMap := existing.(map[string]any)
		otherFields, otherIsMap := value.(map[string]any)
		switch {
		case !exists:
			result[key] = value
		case isMap != otherIsMap:
			return nil
		case isMap:
			inner := unionFields(fields, otherFields)
			if inner == nil {
				return nil
			}
			result[key] = inner
		}
	}
	return result
}

// withMetadata returns a normalized content that has labels and annotations, which may be empty.
func withMetadata(content map[string]any) map[string]any {
	result := normalize(content).(map[string]any)
	meta, _ := result["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	result["metadata"] = map[string]any{"labels": orEmpty(labels), "annotations": orEmpty(annotations)}
	return result
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// mergePatch returns the JSON merge patch from one normalized object to another.
func mergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key, old := range from {
		value, found := to[key]
		if !found {
			patch[key] = nil
			continue
		}
		oldMap, isMap := old.(map[string]any)
		newMap, stays := value.(map[string]any)
		switch {
		case isMap && stays:
			if inner := mergePatch(oldMap, newMap); len(inner) > 0 {
				patch[key] = inner
			}
		case !reflect.DeepEqual(old, value):
			patch[key] = value
		}
	}
	for key, value := range to {
		if _, found := from[key]; !found {
			patch[key] = value
		}
	}
	return patch
}

// overwrite returns an object whose content is replaced. Labels and annotations that are not in the new content remain.
func overwrite(object *unstructured.Unstructured, content map[string]any, identification metadata) *unstructured.Unstructured {
	result := object.DeepCopy()
	for key := range object.Object {
		if _, wanted := content[key]; !wanted && !notContent[key] {
			delete(result.Object, key)
		}
	}
	for key, value := range content {
		if key != "metadata" {
			result.Object[key] = normalize(value)
		}
	}
	labels, annotations := metadataOf(content)
	result.SetLabels(merged(merged(object.GetLabels(), labels), identification.labels))
	result.SetAnnotations(merged(merged(object.GetAnnotations(), annotations), identification.annotations))
	return result
}

// metadataOf returns the labels and annotations of a content.
func metadataOf(content map[string]any) (labels, annotations map[string]string) {
	labels, _, _ = unstructured.NestedStringMap(content, "metadata", "labels")
	annotations, _, _ = unstructured.NestedStringMap(content, "metadata", "annotations")
	return labels, annotations
}

// addMetadata adds labels and annotations to a merge patch.
func addMetadata(patch map[string]any, add metadata) {
	if add.empty() {
		return
	}
	meta, _ := patch["metadata"].(map[string]any)
	meta = maps.Clone(orEmpty(meta))
	for field, values := range map[string]map[string]string{"labels": add.labels, "annotations": add.annotations} {
		if len(values) == 0 {
			continue
		}
		inner, _ := meta[field].(map[string]any)
		inner = maps.Clone(orEmpty(inner))
		for key, value := range values {
			inner[key] = value
		}
		meta[field] = inner
	}
	patch["metadata"] = meta
}

var (
	configMapKind = schema.GroupKind{Kind: "ConfigMap"}
	secretKind    = schema.GroupKind{Kind: "Secret"}
)

// convert converts a content to another kind. It expects that the kinds have the same fields, and does not change values: a ConfigMap
// that becomes a Secret must have base64 values. For ConfigMaps and Secrets it leaves out the fields that the other kind does not have,
// because a server would drop them with each write.
func convert(content map[string]any, from, to schema.GroupKind) (map[string]any, error) {
	switch {
	case from == configMapKind && to == secretKind:
		return toSecret(content)
	case from == secretKind && to == configMapKind:
		return withoutFields(content, "type", "stringData"), nil
	}
	return content, nil
}

func toSecret(content map[string]any) (map[string]any, error) {
	data, _ := content["data"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		text, _ := data[key].(string)
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("the value of key %q is not base64, which a Secret needs", key) // the error of the decoder reveals details of the value
		}
	}
	result := withoutFields(content, "binaryData")
	binary, _ := content["binaryData"].(map[string]any)
	if len(binary) > 0 { // base64 in both kinds; a key is in one of the fields only
		data = maps.Clone(orEmpty(data))
		maps.Copy(data, binary)
		result["data"] = data
	}
	return result, nil
}

func withoutFields(content map[string]any, fields ...string) map[string]any {
	result := maps.Clone(content)
	for _, field := range fields {
		delete(result, field)
	}
	return result
}
