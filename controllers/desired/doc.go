// Package desired computes the Kubernetes objects of an installation from its custom resources: Deployments, Services,
// ConfigMaps and the Secrets that hold kubeconfigs and CA bundles.
//
// Everything here is a pure function of its arguments and returns whole objects; golden files test them. Nothing here
// reads from the cluster. Certificates are in package pki, the objects of etcd in package etcd; both use the names and
// labels from here.
package desired
