package syncer

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
		result["data"] = merge(data, binary)
	}
	return result, nil
}

func merge(values, others map[string]any) map[string]any {
	result := maps.Clone(orEmpty(values))
	maps.Copy(result, others)
	return result
}

func withoutFields(content map[string]any, fields ...string) map[string]any {
	result := maps.Clone(content)
	for _, field := range fields {
		delete(result, field)
	}
	return result
}
