// Package bindings indexes the bound resources of all APIBindings of the shard by logical cluster, from one watch.
// Request handling, discovery, authorization, admission and controllers read it without a storage request.
//
// Equal bound resources and equal sets of them are pooled with reference counts (wall W5): of a binding the index stores
// its name, a resource version, its state and a pointer to the set. An entry exists as long as its binding, hence no
// longer than its logical cluster.
//
// The package must not serve anything: CustomResourceDefinitions, storages and handlers belong to package
// customresources, and reconciling the status of bindings to package apiexport/binding.
package bindings
