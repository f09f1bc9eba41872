// Package hierarchy carries objects between a cache and the one above it, so that regions have caches of their own and
// still know of each other (ADR 0031). What a shard published with global reach goes up, and down again into the other
// regions; everything else stays where it was published.
//
// Every object has one writer, its shard. Every copy has one, too: a cache brings up the objects of its own shards, marked
// with its name, and takes down those that came another way, marked as taken. It never touches a copy with another mark,
// so that nothing runs in circles. Which cache a shard belongs to is where its report came by.
//
// One replica of a cache does this at a time. What it knows are digests; nothing depends on what happened before it
// began, and a parent that is away is caught up with. What a cache stores, and how, is not here.
package hierarchy
