// Package desired computes the Kubernetes objects of an installation from its custom resources: Deployments, Services,
// ConfigMaps and the Secrets that hold kubeconfigs and CA bundles.
//
// All functions are pure and return whole objects; golden files test them. They do not read from the cluster. Package pki renders
// certificates, and package etcd the objects of etcd; both use the names and labels of this package.
package desired
