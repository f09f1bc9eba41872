// Package hierarchy synchronizes a cache with its parent cache, so that every region has its own cache and still
// receives the objects that all regions need (ADR 0031). Objects that a shard publishes with global reach are copied to
// the parent, and from there to the other regions. All other objects stay in the cache that they were published in.
//
// Every object has one writer, its shard. Every copy has one, too: a cache copies the objects of its own shards to its
// parent, annotated with its name, and copies other objects from there, annotated as copies. It never writes a copy
// with another annotation, so there are no loops. A shard belongs to the cache through which its report reached the
// parent.
//
// One replica of a cache does this at a time. It keeps digests only, depends on no earlier state, and catches up after
// the parent was unavailable. Storage of the objects is not here.
package hierarchy
