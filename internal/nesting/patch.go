package nesting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// maxCopiedDepth bounds the levels in the paths of all copies and moves of a JSON patch together, as a multiple of the limit.
const maxCopiedDepth = 4

// maxPatchOperations is the maximum number of operations in a JSON patch. The library that applies them copies a list for each operation
// on it. Known clients and webhooks send some dozens.
const maxPatchOperations = 1000

// CheckJSONPatch returns an error for a JSON patch (RFC 6902) whose result can nest deeper than limit: because of its values, at their
// paths, or because of copies. A copy into a copy adds levels that no value has, so the sum of the paths of all copies is bounded
// instead. Callers must also check the result, because the patched object has its own levels. The number of operations is also limited.
func CheckJSONPatch(patch []byte, limit int) error {
	// A value is two levels below the patch, which is a list of objects.
	if err := CheckJSON(patch, limit+2); err != nil {
		return &TooDeepError{limit}
	}
	// The stock libraries also read operations as maps: names are case-sensitive, and unused fields have any type.
	var operations []map[string]json.RawMessage
	if json.Unmarshal(patch, &operations) != nil {
		return nil // the code that applies it returns a better message
	}
	if len(operations) > maxPatchOperations {
		return &TooManyError{"operations of a JSON patch", maxPatchOperations}
	}
	copied := 0
	for i, operation := range operations {
		levels := levelsOfPath(operation["path"])
		if levels > limit || levelsOfPath(operation["from"]) > limit {
			return fmt.Errorf("operation %d of the patch: %w", i, &TooDeepError{limit})
		}
		if CheckJSON(operation["value"], limit-levels) != nil {
			return fmt.Errorf("operation %d of the patch: %w", i, &TooDeepError{limit})
		}
		if _, ok := operation["from"]; ok { // a copy or a move
			copied += levels
		}
		if copied > maxCopiedDepth*limit {
			return fmt.Errorf("operation %d of the patch: the paths of all copies and moves have more than %d levels together", i, maxCopiedDepth*limit)
		}
	}
	return nil
}

// levelsOfPath returns the number of levels in a JSON pointer, a JSON string. Slashes in names are escaped in pointers.
func levelsOfPath(pointer json.RawMessage) int {
	var path string
	if json.Unmarshal(pointer, &path) != nil {
		return 0
	}
	return strings.Count(path, "/")
}

// maxPatchElements is the maximum number of elements of each list in a strategic merge patch. The stock code searches each in the stored
// list.
const maxPatchElements = 1000

// checkStrategicMergePatch is CheckJSON for strategic merge patches, and checks the length of their lists.
func checkStrategicMergePatch(patch []byte, limit int) error {
	if err := CheckJSON(patch, limit); err != nil {
		return err
	}
	return checkElements(patch, maxPatchElements)
}

// checkElements returns an error if a list has more elements than the limit. The stock handler refuses texts that are not JSON.
func checkElements(text []byte, limit int) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	counts := []int{0} // of the values in each open list or object, of which objects do not count
	isList := []bool{false}
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil // the handler refuses it with a better message
		}
		last := len(counts) - 1
		if token == json.Delim(']') || token == json.Delim('}') {
			counts, isList = counts[:last], isList[:last]
			continue
		}
		if counts[last]++; isList[last] && counts[last] > limit {
			return &TooManyError{"elements of a list in a strategic merge patch", limit}
		}
		if token == json.Delim('[') || token == json.Delim('{') {
			counts, isList = append(counts, 0), append(isList, token == json.Delim('['))
		}
	}
}
