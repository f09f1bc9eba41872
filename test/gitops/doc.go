// Package gitops tests that tools which apply manifests from git can install the operator and an installation, change them, and create
// content in workspaces: Argo CD and Flux, built from their modules. It runs the tools as processes of this machine and provides them
// with manifests of config/ in its own repository.
//
// hack/gitops.sh creates the cluster, builds the tools and runs this package; `make test-gitops` calls it. The build tag excludes the tests
// from `go test ./...`.
package gitops
