// Package v1alpha1 has the types of syncagent.kcp.io: how an API of a service cluster is published into workspaces, and how
// its objects are synced.
//
// Strings and lists have bounds. api-syncagent has none: names have the bounds of Kubernetes, beyond which nothing exists to
// be published, and texts and lists have bounds that no object of a working agent reaches. Lists are atomic, because stock
// apiservers replace lists without a marker as a whole; a list of type map would refuse items with an identifier twice, which
// api-syncagent stores. The agent reports them in a condition instead. For the same reason booleans and empty strings are
// not replaced by enums and pointers.
//
// +kubebuilder:object:generate=true
// +groupName=syncagent.kcp.io
package v1alpha1
