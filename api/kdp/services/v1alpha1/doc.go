// Package v1alpha1 has the types of services.kdp.k8c.io: the older dialect of PublishedResource. Package syncagent/kdp converts
// it to that of syncagent.kcp.io.
//
// +kubebuilder:object:generate=true
// +groupName=services.kdp.k8c.io
package v1alpha1
