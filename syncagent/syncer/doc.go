// Package syncer syncs one primary object: a pass reads it, its copy on the service cluster and its related objects, computes the
// differences with pure functions, and writes them. Every pass starts from the current objects, so an earlier pass may have ended between
// any two writes. Finalizers are written before copies, and copies before the state that describes them.
//
// The package has no goroutines, and caches nothing about an object in memory.
package syncer
