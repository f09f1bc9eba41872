// Package client is how shards, and caches below another cache, read and write a cache server: lists and watches over
// all shards and logical clusters, which resume where they ended, and writes under one's own name.
//
// It implements URLs, the stored resources and the resumption of watches after a disconnect. What objects mean, what
// becomes of objects that are missing and what is published is up to the caller. Nothing in it depends on a server.
package client
