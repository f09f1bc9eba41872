// Package kcpoperator tests that the operator takes over an installation of kcp-operator: against a stock kube-apiserver, with the objects that
// kcp-operator leaves, written by hand. The test plays the controllers that a cluster has beside: those of cert-manager, of Deployments and of
// garbage.
package kcpoperator
