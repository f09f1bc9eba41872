// Package migration moves logical clusters between shards (ADR 0061): it acts on LogicalClusterMigrations.
//
// Three shards take part, and may coincide: the origin has the logical cluster, the destination is to receive it, and the
// home stores the LogicalClusterMigration. No shard writes into another. Origin and destination publish reports in the cache
// server, and the home writes the status of the migration from these. The destination reads the content from the origin by
// requests of its own, with the certificate of the shard; the origin answers only to the shard that an accepted migration
// names.
//
// The state is in the annotations of the LogicalCluster on either shard. At the destination it is a
// placeholder, which is stored before the first object is copied, and replaced by the LogicalCluster that the origin hands over.
// Pure functions of this package (Origin, Destination, Home) decide the next step from the stored state only, so that a crash
// loses nothing. Packages below read and write keys
// (transfer) and refuse requests (fence).
package migration
