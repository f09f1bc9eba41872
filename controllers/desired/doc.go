// Package desired computes the Kubernetes objects of an installation from its custom resources: Deployments, Services,
// ConfigMaps and the Secrets that hold kubeconfigs and CA bundles.
//
// Everything here is a pure function of its arguments and returns whole objects; golden files test them. Nothing here
// talks to a server or knows what exists already. Certificates are in package pki, etcd's objects in package etcd; both
// use the names and labels from here.
package desired
