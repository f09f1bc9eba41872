package nesting

import (
	"encoding/json"
	"errors"

	"github.com/fxamacker/cbor/v2"
	"sigs.k8s.io/yaml"
)

// CheckJSON returns a TooDeepError if objects and lists of a JSON text nest deeper than limit. It reads each byte once. It accepts
// invalid texts, because a decoder refuses them without recursing deeper.
func CheckJSON(text []byte, limit int) error {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if depth++; depth > limit {
				return &TooDeepError{limit}
			}
		case '}', ']':
			depth--
		case '"':
			i = stringEnd(text, i)
		}
	}
	return nil
}

// stringEnd returns the index of the closing quote of the string that opens at start, or the length of the text.
func stringEnd(text []byte, start int) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text)
}

// CheckYAML is CheckJSON for YAML, after aliases. Stock decoders convert YAML to JSON, with limits on depth and aliases, before they
// decode it, and so does CheckYAML. Most bodies that are declared as YAML are JSON, and are not converted.
func CheckYAML(text []byte, limit int) error {
	if json.Valid(text) {
		return CheckJSON(text, limit)
	}
	converted, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil // the decoder refuses it with a better message
	}
	return CheckJSON(converted, limit)
}

// CheckCBOR is CheckJSON for CBOR. Tags also count as levels. The limit is between 4 and 65535.
func CheckCBOR(data []byte, limit int) error {
	// The other limits are those of the stock decoder, which decodes the body after this check.
	mode, err := cbor.DecOptions{MaxNestedLevels: limit, MaxArrayElements: 2147483647, MaxMapPairs: 2097152}.DecMode()
	if err != nil {
		return err
	}
	var tooDeep *cbor.MaxNestedLevelError
	if errors.As(mode.Wellformed(data), &tooDeep) {
		return &TooDeepError{limit}
	}
	return nil
}
