// Package shortname shortens names to fit limits: names of instances have up to 253 characters, label values and the names of many
// objects up to 63.
package shortname

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Label is the limit for label values, and for names of objects that are DNS labels. Object is the limit for other names of objects.
const Label, Object = 63, 253

// hashed is the number of hexadecimal digits that distinguish names with the same beginning.
const hashed = 10

// Of returns a name that has at most limit characters: the name itself, or its beginning and a hash. limit must be greater than 11.
func Of(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	// The shortened part must not end in a separator: "a.-b" is not a valid name.
	return strings.TrimRight(name[:limit-hashed-1], "-._") + "-" + hex.EncodeToString(sum[:hashed/2])
}

// Truncate returns a text that has at most some bytes: the text itself, or its beginning and three dots.
func Truncate(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes-len("...")], "") + "..."
}

// LabelValue converts a text to a label value: it replaces invalid characters, like the plus sign of a semantic version, by dashes.
func LabelValue(text string) string {
	value := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, text)
	return strings.Trim(value[:min(len(value), Label)], "-._")
}
