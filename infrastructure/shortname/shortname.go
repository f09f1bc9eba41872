// Package shortname fits names into limits: names of instances have up to 253 characters, values of labels and the names of many objects
// 63.
package shortname

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Label is the limit of values of labels, and of names of objects that are DNS labels. Object is the limit of other names of objects.
const Label, Object = 63, 253

// hashed is the number of hexadecimal digits that tell names apart that begin alike.
const hashed = 10

// Of returns a name that has at most limit characters: itself, or its beginning and a hash. limit is greater than 11.
func Of(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	// What is cut must not end in a separator: "a.-b" is no name.
	return strings.TrimRight(name[:limit-hashed-1], "-._") + "-" + hex.EncodeToString(sum[:hashed/2])
}

// LabelValue returns a text as a value of a label, with dashes for what such a value cannot have, like the plus sign of a semantic version.
func LabelValue(text string) string {
	value := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, text)
	return strings.Trim(value[:min(len(value), Label)], "-._")
}
