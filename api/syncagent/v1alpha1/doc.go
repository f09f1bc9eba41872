// Package v1alpha1 has the types of syncagent.kcp.io: how an API of a service cluster is published into workspaces, and how
// its objects are synced.
//
// +kubebuilder:object:generate=true
// +groupName=syncagent.kcp.io
package v1alpha1
