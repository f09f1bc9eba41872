// Package syncer syncs one primary object: a pass observes it, its copy on the service cluster and its related objects, decides with
// pure functions what differs, and writes that. Every pass starts from what it finds, so that it does not matter between which two writes an
// earlier one has ended. Finalizers are written before copies, copies before the state that describes them.
//
// The package has no goroutines, and keeps nothing about an object in memory.
package syncer
