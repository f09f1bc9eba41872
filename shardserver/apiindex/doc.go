// Package apiexport knows the exports of APIs: where they are found, what they offer, which claims hold between an
// export and a binding, what definition follows from a schema, and by which labels and hashes objects are told to
// belong together.
//
// It reads and decides, for requests, admission, authorization, virtual workspaces and controllers alike. It must not
// write: that is for the controllers in the packages below this one. What is bound where is known by package bindings.
package apiindex
