// Package controllers is the operator. Package reconcile is the control loop. The packages of the kinds (shard, cacheserver, frontproxy,
// virtualworkspace, kubeconfig) contain their steps, and package server contains the steps of all servers; certificatesecret deletes
// Secrets that cert-manager does not delete. Packages desired, pki and etcd render objects with pure functions; workload and apply apply
// them to the cluster; rollout decides when pods may be replaced; status converts results to conditions. No package imports a server of
// an installation: the operator depends on flags, files and URLs only.
package controllers

// The metrics endpoint authenticates and authorizes its clients at the cluster.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
