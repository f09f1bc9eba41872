// Package gitops tests that tools which apply manifests from git can install the operator and an installation, change them, and put
// content into workspaces: Argo CD and Flux, built from their modules. It runs the tools as processes of this machine and gives them manifests of
// config/ in a repository of its own.
//
// hack/gitops.sh creates the cluster, builds the tools and runs this package; `make test-gitops` calls it. The build tag excludes the tests
// from `go test ./...`.
package gitops
