// Package binding holds the controllers of APIBindings.
//
// The controller "apibinding" reconciles all bindings of a logical cluster together: it resolves their exports, reserves
// each resource for one binding or for a CustomResourceDefinition of the cluster, ensures the definitions that serve the
// bound resources, and writes status and conditions of each binding once. The controller "apibinding-deletion" deletes
// the objects of a binding that is being deleted and then removes its finalizer.
//
// Reads are in observe.go and nameconflicts.go; decisions are pure functions in reservations.go, names.go and decide.go;
// writes are in write.go. Each shard runs one instance of each controller. The package must not keep state of a logical
// cluster in memory between two reconciliations, apart from waiters for a definition.
package binding
