// Package shardbase is what RootShards and Shards have in common when they are brought up: what their specs refer to, what
// of a spec can be acted on, and the server with the files it reads. Which of it belongs to which conditions, and in what
// order, the reconcilers say.
package shardbase
