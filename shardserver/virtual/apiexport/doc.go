// Package apiexport holds the virtual workspace of exports: what the provider of an API sees and does, in one place for
// all workspaces that bind its export. It shows the resources of the export itself, those that the export claims and
// their consumers let it have, and the bindings to the export.
//
// What is shown follows from the export alone (apiSet), never from a consumer: documents about the API are shared by
// content, and nothing is kept because a workspace binds an export (walls W2, W5). What is allowed in one logical cluster
// follows from its binding (steps). Requests go on, in the process, to the logical cluster itself, as the caller with a
// warrant for it; or over all logical clusters to the storage that they share.
//
// Which exports there are, and by which labels claimed objects are told, is the matter of package apiexport of the
// shard; that those objects carry the labels, of admission there.
package apiexport
