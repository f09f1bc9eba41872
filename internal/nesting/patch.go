package nesting

import (
	"encoding/json"
	"fmt"
	"strings"
)

// maxCopiedDepth is how many times the limit the paths of all copies and moves of a JSON patch have in levels together.
const maxCopiedDepth = 4

// CheckJSONPatch returns an error for a JSON patch (RFC 6902) whose result can nest deeper than limit: by its values, at the paths
// that it gives them, or by copies. A copy into a copy adds levels that no value has, so the sum of the paths of all copies is
// bounded instead. Clients must check the result, too: the object that is patched has levels of its own.
func CheckJSONPatch(patch []byte, limit int) error {
	// A value is two levels below the patch, which is a list of objects.
	if err := CheckJSON(patch, limit+2); err != nil {
		return &TooDeepError{limit}
	}
	// The stock libraries read operations as maps, too: names are case-sensitive, and unused fields have any type.
	var operations []map[string]json.RawMessage
	if json.Unmarshal(patch, &operations) != nil {
		return nil // whoever applies it refuses it with a better message
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
