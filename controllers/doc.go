// Package controllers is the operator. Package reconcile is the control loop; the packages of the kinds (shard,
// cacheserver, frontproxy, virtualworkspace, kubeconfig) have their steps, and package server has those that all servers
// share; certificatesecret deletes what cert-manager leaves behind. Packages desired, pki and etcd render objects by pure functions; workload and apply bring them into the
// cluster; rollout decides when pods may be replaced; status turns results into conditions. Nothing here imports a
// server of an installation: the operator depends on flags, files and URLs only.
package controllers

// The metrics endpoint authenticates and authorizes its clients at the cluster.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
