// Package drain moves all workspaces of a shard to other shards, a few at a time. The operator and kubectl plug-ins use it, as
// administrators of the installation.
//
// A drain has no state of its own: the LogicalClusterMigrations in root with its label are what has been done, and the annotation
// that closes the Shard for new workspaces is what is wanted. It can therefore be interrupted at any point, and continued by
// somebody else.
package drain
