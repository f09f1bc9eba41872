// Package transfer reads, copies, verifies and deletes all keys of one logical cluster in the etcd of its shard. It is
// the part of a move between two shards that touches etcd; it depends neither on APIs nor on controllers, and sends no requests to the other
// shard.
//
// # Keys of a logical cluster
//
// An object is stored at <prefix><storage prefix>/<logical cluster>/<name>. The storage prefix has two segments, /<group>/<resource>,
// or three: that of definitions in logical clusters ends with "customresources", that of a bound API with its identity. Only the set
// of storage prefixes distinguishes /<group>/<resource>/<logical cluster>/<namespace>/<name> from
// /<group>/<resource>/<identity>/<logical cluster>/<name>, which is why Config.Storages provides it: this package does not count
// segments. Each read is limited to the logical cluster's range below each storage prefix, so that its cost depends on the size of the
// logical cluster and not of the shard.
//
// # Copying
//
// The destination of a move stores values at the keys that they have there in the end, encrypted by the transformer of this shard.
// The caller prevents all other access to them until the copy is complete (package fence), and each transaction requires that
// (NewWriter). Each value has a record at <prefix>/~incoming/<logical cluster>/<UID of the migration><storage prefix>/~/<name>: a JSON
// document with the key, its revision at the origin and its expiry, written in the same transaction. The records contain what is
// copied in which version, so that a copy can continue after a crash, and what an aborted copy has to delete. No API group begins with
// "~", so that no storage, and no scan over storages, contains them. No segment of a storage prefix is "~", so that two records
// never have the same place.
//
// # Comparing
//
// A Follower has the digest of a logical cluster while it changes, on either shard. It reads every value once, and receives changes from
// watches, so that both shards can compare all that they have without reading it again.
//
// # Revisions
//
// A Writer and Purge change one key of objects per transaction, hence per revision: watches resume after a revision, and would miss
// the rest of one that has several events. Many transactions are in flight at once, which etcd writes to its log together.
// Nothing watches the records.
package transfer
