// Package kcpoperator tests the operator against a stock kube-apiserver: that it takes over an installation of kcp-operator, with
// handwritten copies of the objects that kcp-operator creates, and that it gives the client CA of an installation another key. The tests
// implement the other controllers of a cluster: those of cert-manager, of Deployments and of the garbage collector.
package kcpoperator
