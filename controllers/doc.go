// Package controllers is the operator. Below it, one package per kind reconciles (rootshard, frontproxy, kubeconfig); what
// objects look like is computed by pure functions (desired, pki, etcd); apply brings them into the cluster; status turns
// results into conditions. Nothing here imports a server of an installation: the operator knows them by their flags,
// files and URLs only.
package controllers

// The metrics endpoint, where it is turned on, asks the cluster who may read it.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
