#!/usr/bin/env bash
# Runs all tests: the unit tests of the main module first and alone, because they keep all processors busy; then the tests on pods, which
# mostly wait for rollouts, beside the unit tests of other modules, the fuzz targets and the conformance. The output of what runs beside
# follows when it has ended.
#
#   BESIDE_PODS  a command that runs beside the tests on pods, too, before the others: .ci/run has vet and linters there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=hack/step.sh
source hack/step.sh

# steps runs make targets one after the other, until one fails.
steps() {
	local step
	for step in "$@"; do timed "make $step" make --no-print-directory "$step" || return; done
}

# beside runs what the tests on pods leave processors for. All of it runs even when a part fails.
beside() {
	local code=0 step
	${BESIDE_PODS:-} || code=$?
	for step in test-modules fuzz conformance; do steps "$step" || code=$?; done
	return "$code"
}

steps test-main

output=$(mktemp)
set -m # a process group of its own, which the trap ends with all that it runs
beside >"$output" 2>&1 &
lane=$!
set +m
finish() {
	kill -- -"$lane" 2>/dev/null || true
	rm -f "$output"
}
trap finish EXIT
trap 'exit 130' INT TERM

echo "tests on pods follow; tests of other modules, fuzz targets and the conformance run beside them, and are printed at the end"
code=0
steps test-e2e || code=$?
[[ -d /proc/$lane ]] && echo "waiting for what runs beside the tests on pods"
wait "$lane" || code=$?
printf '\nbeside the tests on pods\n'
cat "$output"
exit "$code"
