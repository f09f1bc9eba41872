#!/usr/bin/env bash
# Argo CD and Flux apply this repository's manifests from git to the development cluster: `go test` of test/gitops. The
# tools are built from their modules, and cached; they run as processes of this machine. The cluster is made for the tests, and
# removed.
# Arguments go to go test: hack/gitops.sh -run TestArgoCD
#
#   GITOPS_STEADY  how long nothing may change after an installation (10m)
#   GITOPS_KEEP    anything: leave the cluster there
#   GITOPS_PICTURES  an absolute folder, for pictures of what the tools show; takes Chromium
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"
# shellcheck source=hack/tool.sh
source hack/tool.sh

if [[ -d .demo ]]; then
	echo "a demo runs, or a kept cluster of the end-to-end tests: end it first with make demo-down" >&2
	exit 1
fi
finish() {
	local code=$?
	if [[ -z ${GITOPS_KEEP:-} ]]; then hack/demo.sh down || code=1; fi
	exit "$code"
}

printf 'programs of the tools (the first build takes minutes)\n'
programs=$cache/gitops
mkdir -p "$programs"
argocd=hack/gitops/argocd
go -C $argocd mod download github.com/argoproj/argo-cd/v3
# The version is that of Argo CD's own manifests, which the tests apply.
version=$(go -C $argocd list -m -f '{{.Version}}' github.com/argoproj/argo-cd/v3)
ln -sf "$(tool $argocd github.com/argoproj/argo-cd/v3/cmd "-s -w -X github.com/argoproj/argo-cd/v3/common.version=${version#v}")" "$programs/argocd"
ln -sf "$(tool $argocd sigs.k8s.io/kustomize/kustomize/v5 '-s -w')" "$programs/kustomize"
sources=$(go -C $argocd list -m -f '{{.Dir}}' github.com/argoproj/argo-cd/v3)
GITOPS_ARGOCD_MANIFESTS=$sources/manifests
# The repository server runs it for every commit; it is in Argo CD's image.
install -m 755 "$sources/hack/git-verify-wrapper.sh" "$programs/"
flux=hack/gitops/flux
GITOPS_FLUX_DEFINITIONS=
for controller in source-controller kustomize-controller; do
	go -C $flux mod download "github.com/fluxcd/$controller"
	ln -sf "$(tool $flux "github.com/fluxcd/$controller" '-s -w')" "$programs/$controller"
	GITOPS_FLUX_DEFINITIONS+=:$(go -C $flux list -m -f '{{.Dir}}' "github.com/fluxcd/$controller")/config/crd/bases
done

trap finish EXIT
trap 'exit 130' INT TERM
hack/demo.sh cluster
if [[ $(cat .demo/made-cluster 2>/dev/null) != yes ]]; then
	echo "this cluster was there before. The tests install Argo CD, Flux and the operator, and delete their definitions with all objects at the end, so that they need one of their own: unset KUBECONFIG, or end that cluster" >&2
	exit 1
fi
hack/demo.sh again docker.io/local/atoll:next

printf '\ntests\n'
export GITOPS_KUBECONFIG=$PWD/.demo/kubeconfig GITOPS_PROGRAMS=$programs GITOPS_ARGOCD_MANIFESTS GITOPS_FLUX_DEFINITIONS=${GITOPS_FLUX_DEFINITIONS#:}
export PATH=$PWD/bin:$PATH # has kubectl if this machine has none
export GITOPS_IMAGE=docker.io/local/atoll:dev GITOPS_NEXT_IMAGE=docker.io/local/atoll:next GITOPS_STEADY=${GITOPS_STEADY:-10m}
go test -tags gitops -count 1 -timeout 60m -v ./test/gitops "$@"
if compgen -G "${GITOPS_PICTURES:-/nowhere}/*.html" >/dev/null; then go -C test/chromium test -count 1 -run TestTerminals ./pictures; fi
