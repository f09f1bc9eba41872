// Package apiindex holds read-only indexes over APIExports and over the objects that refer to them, and the pure
// functions that several packages share: which permission claims are effective between an export and a binding, which
// CustomResourceDefinition an APIResourceSchema is served by, and the labels and hashes that link claimed objects and
// bindings to an export.
//
// Request handlers, admission, authorization, virtual workspaces and controllers read it. It must not write to the API:
// that is for the controllers in package apiexport. Package bindings indexes which resources are bound where.
package apiindex
