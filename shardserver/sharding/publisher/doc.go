// Package publish writes into the cache server what other shards must know of this one, under the name of this shard.
// What that is, sources say: a pure function from the shard's own objects to what stands in the cache. So everything is
// written again after the cache lost it, and a crash at any moment changes nothing. Nobody else writes there.
//
// Plain copies of objects are sources of this package; what is derived from them belongs to who derives it. What others
// have published is the matter of package mirror.
//
// # What a complete report promises
//
// The report of a shard says "complete" from some resource version of the cache's store on, and as long as that report
// stands. Whoever has read the streams of this store up to that version has seen every object that the shard wanted to be
// published when the pass before the report began (passes are in pass.go), in a state that it had then or later. What is
// not in the streams at that position did not exist, or has ended since. That is all: an object that came later, or
// another state of one, arrives when it arrives, as from any shard at any time; what is on its way out, held by
// finalizers, is not written again where it was lost; and what is published too much, because it is wanted no more, is
// taken back by then.
//
// So an object counts once it was published since the pass began, and it does not matter whether it has changed again. A
// pass therefore ends after as many writes as there are objects, whatever tenants do meanwhile. One object that cannot be
// written holds it up: its absence would be taken for its end.
//
// The promise is about one store. The report that breaks the news is an update of one that stood in that store before
// the pass ended, so that it never lands in another one, and a report that is gone takes the promise, and a pass that has
// begun, with it.
package publisher
