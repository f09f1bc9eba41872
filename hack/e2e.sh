#!/usr/bin/env bash
# The end-to-end tests: a cluster with the operator in it (that of hack/demo.sh, so KUBECONFIG and kind work here too),
# then `go test` of test/e2e against it, then of the charts (test/clients/charts), for which that operator is removed.
# Objects created for the tests are removed afterwards; all others are kept.
# Arguments go to go test, of test/e2e only: hack/e2e.sh -run TestInstallation/workspaces
#
#   E2E_TESTS  operator or charts: only the tests of test/e2e, or only those of the charts
#   E2E_ROUTE  forward: reach the front proxy and etcd by port-forwards, although this host may reach Services
#   E2E_NEXT_IMAGE  another image of the servers, for rollouts; by default the same image under another name, where images can be loaded
#   E2E_KEEP   anything: leave cluster and operator there, and after a failure the tested installation too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"

kept=no
[[ -d .demo ]] && kept=yes # a demo runs; its cluster is used and kept
finish() {
	local code=$?
	if [[ $kept == no && -z ${E2E_KEEP:-} ]]; then hack/demo.sh down || code=1; fi
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

tests=${E2E_TESTS:-operator charts}
(($# == 0)) || tests=${E2E_TESTS:-operator}
hack/demo.sh operator
if [[ $tests == *operator* ]]; then
	hack/demo.sh images
	if hack/demo.sh tofu-image; then export E2E_TOFU=yes; fi
	for plugin in kubectl-ws kubectl-create-workspace kubectl-kcp; do
		[[ -x bin/$plugin ]] || { make --no-print-directory build; break; }
	done
fi

# A second image for rollouts. Set one that the nodes can pull where images cannot be loaded.
if [[ -z ${E2E_NEXT_IMAGE:-} ]]; then
	if hack/demo.sh again docker.io/local/atoll:next; then E2E_NEXT_IMAGE=docker.io/local/atoll:next; fi
fi

export E2E_KUBECONFIG=$PWD/.demo/kubeconfig E2E_BIN=$PWD/bin E2E_NEXT_IMAGE=${E2E_NEXT_IMAGE:-} E2E_IMAGE=${IMAGE:-docker.io/local/atoll:dev}
if [[ $tests == *operator* ]]; then
	printf '\nend-to-end tests\n'
	${TIMED:-} go test -tags e2e -vet=off -count 1 -timeout 45m -v ./test/e2e/... "$@"
fi

[[ $tests == *charts* ]] || exit 0
printf '\nend-to-end tests of the charts\n'
if [[ $kept == yes || -n ${E2E_KEEP:-} ]]; then
	echo "skipped: they remove the operator, and this cluster is kept with it"
elif [[ $(cat .demo/made-operator 2>/dev/null) != yes ]]; then
	echo "skipped: they need a cluster without the operator, and it was in this one before"
else
	hack/demo.sh operator-down
	${TIMED:-} go -C test/clients test -tags e2e -vet=off -count 1 -timeout 20m -v -run TestOnCluster ./charts
fi
