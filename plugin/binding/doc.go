// Package binding is the library behind "kubectl kcp bind" and "kubectl kcp claims": it creates APIBindings, waits for
// them, lists, accepts and rejects the permission claims of the exports that they bind, and warns about unanswered
// claims.
//
// Servers may prefer v1alpha1 or v1alpha2 of apis.kcp.io; both are written, which is why objects stay unstructured here
// and claim.go has the few fields that matter. The computation of claims (claim.go, answer.go) and of warnings
// (warnings.go) is in pure functions; commands.go binds everything to cobra.
package binding
