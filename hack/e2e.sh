#!/usr/bin/env bash
# The end-to-end tests: a cluster with the operator in it (that of hack/demo.sh, so KUBECONFIG and kind work here too),
# then `go test` of test/e2e against it. What was made for them is removed afterwards; what was there before stays.
# Arguments go to go test: hack/e2e.sh -run TestInstallation/workspaces
#
#   E2E_ROUTE  forward: reach the front proxy and etcd by port-forwards, although this host may reach Services
#   E2E_KEEP   anything: leave cluster and operator there, and after a failure the tested installation too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"

kept=no
[[ -d .demo ]] && kept=yes # a demo runs; its cluster is used and left to it
finish() {
	local code=$?
	if [[ $kept == no && -z ${E2E_KEEP:-} ]]; then hack/demo.sh down || code=1; fi
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

hack/demo.sh operator
for plugin in kubectl-ws kubectl-create-workspace kubectl-kcp; do
	[[ -x bin/$plugin ]] || { make --no-print-directory build; break; }
done

printf '\nend-to-end tests\n'
E2E_KUBECONFIG=$PWD/.demo/kubeconfig E2E_BIN=$PWD/bin \
	go test -tags e2e -count 1 -timeout 20m -v ./test/e2e/... "$@"
