// Package migration moves logical clusters between shards (ADR 0061): it acts on LogicalClusterMigrations.
//
// Three shards have a part, and may coincide: the origin has the logical cluster, the destination is to have it, and the
// home stores the LogicalClusterMigration. No shard writes into another. Origin and destination publish reports in the cache
// server, and the home writes the status of the migration from these. The destination reads the content from the origin by
// requests of its own, with the certificate of the shard; the origin answers only to the shard that an accepted migration
// names.
//
// The state is in the annotations of the LogicalCluster on either shard. At the destination that is one which arrives, and has
// nothing else, from before the first object is copied until the one that the origin hands over replaces it. What to do is decided by the pure functions of this
// package (Origin, Destination, Home) from what is stored, so that a crash loses nothing. Packages below read and write keys
// (transfer) and refuse requests (fence).
package migration
