// Package nesting bounds how deep objects nest, before a decoder recurses into them: it scans each encoding, and provides decoders that
// refuse objects that are too deep, and a filter for request bodies.
//
// It knows no resource and no type by name. The validity of an object must be checked after decoding.
package nesting

import "fmt"

// Limits are the numbers of levels of objects and lists in an object. A level is an object or a list of its JSON, independent of the
// encoding in which it is sent.
type Limits struct {
	// Request bounds the objects that clients, webhooks and peers send.
	Request int
	// Stored bounds the objects that are read from etcd. It is larger, so that no accepted object becomes unreadable.
	Stored int
}

// Default returns the limits of servers. Objects that people write nest less than 50 levels. The schema of a property is two levels
// below that of its parent, so that definitions have 120 levels of properties.
func Default() Limits { return Limits{Request: 256, Stored: 1024} }

// TooDeepError is the error for an object that nests deeper than a limit.
type TooDeepError struct{ Limit int }

// Error implements error.
func (e *TooDeepError) Error() string {
	return fmt.Sprintf("objects and lists are nested deeper than the limit of %d levels", e.Limit)
}

// TooManyError is the error for a patch with more parts than a limit.
type TooManyError struct {
	// Parts is the name of the counted parts.
	Parts string
	Limit int
}

// Error implements error.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("there may be at most %d %s", e.Limit, e.Parts)
}
