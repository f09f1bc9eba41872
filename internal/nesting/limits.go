// Package nesting bounds how deep objects nest, before a decoder recurses into them: a scan of each encoding, decoders that
// refuse what is too deep, and a filter for request bodies.
//
// It knows no resource and no type by name. What is valid in an object must be checked after decoding.
package nesting

import "fmt"

// Limits are the numbers of levels of objects and lists in an object. A level is an object or a list of its JSON, in whatever
// encoding it is sent.
type Limits struct {
	// Request bounds what clients, webhooks and peers send.
	Request int
	// Stored bounds what is read from etcd. It is larger, so that nothing that was accepted becomes unreadable.
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
	// Parts is what is counted.
	Parts string
	Limit int
}

// Error implements error.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("there may be at most %d %s", e.Limit, e.Parts)
}
