// Package kcpoperator tests that the operator takes over an installation of kcp-operator: against a stock kube-apiserver, with
// handwritten copies of the objects that kcp-operator creates. The test implements the other controllers of a cluster: those of
// cert-manager, of Deployments and of the garbage collector.
package kcpoperator
