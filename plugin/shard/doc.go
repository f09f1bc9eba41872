// Package shard holds the commands with which administrators of an installation close a shard for new workspaces, and move all of its
// workspaces to other shards.
package shard
