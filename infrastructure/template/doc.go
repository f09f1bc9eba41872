// Package template turns Templates into CRDs, and into schemas in the export of the provider.
//
// Decisions that do not need a server are pure functions: Validate, Definition, Schema and Compare. The controller calls them, calls the
// backend, and writes objects.
package template
