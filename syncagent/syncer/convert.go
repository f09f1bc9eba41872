package syncer

import (
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	configMapKind = schema.GroupKind{Kind: "ConfigMap"}
	secretKind    = schema.GroupKind{Kind: "Secret"}
)

// convert returns a content in the form of another kind. All kinds but ConfigMaps and Secrets are expected to agree about their fields.
func convert(content map[string]any, from, to schema.GroupKind) (map[string]any, error) {
	switch {
	case from == configMapKind && to == secretKind:
		return toSecret(content), nil
	case from == secretKind && to == configMapKind:
		return toConfigMap(content)
	}
	return content, nil
}

func toSecret(content map[string]any) map[string]any {
	data, _ := content["data"].(map[string]any)
	binary, _ := content["binaryData"].(map[string]any)
	secret := map[string]any{}
	for key, value := range data {
		text, _ := value.(string)
		secret[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	for key, value := range binary {
		secret[key] = value
	}
	return withData(content, map[string]map[string]any{"data": secret})
}

func toConfigMap(content map[string]any) (map[string]any, error) {
	secret, _ := content["data"].(map[string]any)
	data, binary := map[string]any{}, map[string]any{}
	for key, value := range secret {
		encoded, _ := value.(string)
		decoded, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, fmt.Errorf("the value of key %q is not base64", key) // the error of the decoder tells about the value
		}
		if utf8.Valid(decoded) {
			data[key] = string(decoded)
		} else {
			binary[key] = encoded
		}
	}
	return withData(content, map[string]map[string]any{"data": data, "binaryData": binary}), nil
}

// withData returns a content with other data, and without the fields that only one of the kinds has.
func withData(content map[string]any, fields map[string]map[string]any) map[string]any {
	result := map[string]any{}
	for key, value := range content {
		switch key {
		case "data", "binaryData", "stringData", "type":
		default:
			result[key] = value
		}
	}
	for key, value := range fields {
		if len(value) > 0 {
			result[key] = value
		}
	}
	return result
}
