// Package move is the library behind "kubectl kcp move": it moves the logical cluster of a workspace to another shard by a
// LogicalClusterMigration in the root workspace, and follows it. The shards do the work; nothing depends on the command.
package move
