// Package transfer reads, stages, verifies, activates and deletes all keys of one logical cluster in the etcd of its shard. It is
// the part of a move between two shards that touches etcd; it knows neither APIs nor controllers, and does not talk to the other
// shard.
//
// # Keys of a logical cluster
//
// An object is stored at <prefix><storage prefix>/<logical cluster>/<name>. The storage prefix has two segments, /<group>/<resource>,
// or three: that of definitions in logical clusters ends with "customresources", that of a bound API with its identity. Only the set
// of storage prefixes tells /<group>/<resource>/<logical cluster>/<namespace>/<name> and
// /<group>/<resource>/<identity>/<logical cluster>/<name> apart, which is why Config.Storages provides it: nothing here counts
// segments. Each read is limited to the logical cluster's range below each storage prefix, so that its cost follows the logical
// cluster and not the shard.
//
// # Staging
//
// The destination of a move collects the content below <prefix>/~incoming/<logical cluster>/<UID of the migration>/. No API group
// begins with "~", so that no storage, and no scan over storages, contains these keys: the copy cannot be seen until Activate
// writes the real keys. A staged key consists of two:
//
//   - versions<storage prefix>/~/<name>: a JSON document (record) with the key, its revision at the origin and its expiry. Staged
//     reads only these, which are small.
//   - values<storage prefix>/~/<name>: the value, encrypted by the transformer of this shard for the resource, for this key.
//
// No segment of a storage prefix is "~", so that two keys never have the same place. Both are written in one transaction and have no
// lease: what a move leaves behind stays until DropStaged.
//
// # Revisions
//
// Activate and Purge change one key per transaction, hence per revision: watches resume after a revision, and would miss the rest of
// one that has several events. Many transactions are in flight at once, which etcd writes to its log together. Nothing watches the
// staging area, where one transaction has as many keys as fit.
package transfer
