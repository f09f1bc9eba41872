// Package bindings knows which exported APIs are bound in which logical cluster: an index over the status of all
// APIBindings of the shard, fed by one watch, that requests, discovery, authorization, admission and controllers read
// without asking storage.
//
// What many clusters have in common is held once (wall W5): equal bound resources, and equal sets of them, are shared
// and counted; of a binding itself the index keeps its name, a version and a pointer. Everything goes with the binding,
// hence with its logical cluster.
//
// The index says what is bound, not whether it can be served: definitions, storages and handlers are the matter of
// package customresources. How a binding comes to bind is that of package apiexport.
package bindings
