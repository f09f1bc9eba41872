#!/usr/bin/env bash
# Runs all tests: the unit tests first and alone, because they keep all processors busy; then the tests on pods, which mostly wait for
# rollouts, beside the fuzz targets and the conformance. The output of the latter two follows when they have ended.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=hack/step.sh
source hack/step.sh

# steps runs make targets one after the other, until one fails.
steps() {
	local step
	for step in "$@"; do timed "make $step" make --no-print-directory "$step" || return; done
}

steps test-unit

beside=$(mktemp)
set -m # a process group of its own, which the trap ends with all that it runs
steps fuzz conformance >"$beside" 2>&1 &
lane=$!
set +m
finish() {
	kill -- -"$lane" 2>/dev/null || true
	rm -f "$beside"
}
trap finish EXIT
trap 'exit 130' INT TERM

echo "tests on pods follow; fuzz targets and the conformance run beside them, and are printed at the end"
code=0
steps test-e2e || code=$?
[[ -d /proc/$lane ]] && echo "waiting for fuzz targets and the conformance"
wait "$lane" || code=$?
printf '\nfuzz targets and the conformance\n'
cat "$beside"
exit "$code"
