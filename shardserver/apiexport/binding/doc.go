// Package binding holds the controllers of APIBindings. One works on logical clusters: it finds out what the exports of
// all bindings of a cluster offer, gives each resource to one of them or to a definition of the cluster's own, makes the
// definitions that are missing, and says in the status of each binding what it binds and what it lacks. The other empties
// a binding that is being deleted.
//
// Decisions are pure functions (locks.go, names.go, decide.go) over what a pass has observed (pass.go). There is one of
// each controller per shard; of a logical cluster nothing stays in memory after its pass.
package binding
