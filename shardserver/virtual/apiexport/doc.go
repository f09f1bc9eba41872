// Package apiexport holds the virtual workspace of APIExports: the API by which a provider reads and writes the objects
// of its export in all logical clusters that bind it. It serves the resources of the export, the claimed resources that
// consumers accept, and the bindings to the export.
//
// The served API depends on the export alone (apiSet), never on a consumer, so that discovery and OpenAPI documents are
// shared and nothing is stored per consumer (walls W2, W5). Access to one logical cluster depends on its binding
// (stepsAuthorizer). A request for one logical cluster is forwarded in the process, as the caller with a warrant for it;
// a request for all of them goes to the storage that they share.
//
// The package must not label claimed objects (package apiexport/claims) or index exports (package apiindex).
package apiexport
