// Package subresources records in an APIExport where its custom subresources are served and with which verbs, so that the shards of its
// consumers need to read neither the objects that its entries reference, which are of any kind and not published, nor the discovery of
// backends.
//
// Only the controller of this package, on the shard of the export, asks backends. The package must not forward requests of users
// (package virtualstorage).
package subresources
