// Package template turns Templates into definitions of kinds and their schemas in the export of the provider.
//
// What can be decided without a server is in pure functions: Validate, Definition, Schema and Compare. The controller calls
// them, calls the backend, and writes.
package template
