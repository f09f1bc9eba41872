// Package binding is the library behind "kubectl kcp bind" and "kubectl kcp claims": it creates APIBindings, waits for
// them, shows and answers the permission claims of the exports that they bind, and knows which unanswered claims deserve
// a warning.
//
// Servers may prefer v1alpha1 or v1alpha2 of apis.kcp.io; both are written, which is why objects stay unstructured here
// and claim.go holds the few fields that matter. What a claim becomes (claim.go, answer.go) and what is warned of
// (warnings.go) are pure functions; commands.go binds everything to cobra.
package binding
