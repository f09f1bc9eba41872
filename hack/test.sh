#!/usr/bin/env bash
# Runs all tests in two lanes at once: the unit tests, fuzz targets and the conformance, which keep the processors busy; beside them the
# tests on pods, which mostly wait for rollouts. The output of the latter follows when both have ended.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=hack/step.sh
source hack/step.sh

# steps runs make targets one after the other, until one fails.
steps() {
	local step
	for step in "$@"; do timed "make $step" make --no-print-directory "$step" || return; done
}

pods=$(mktemp)
set -m # a process group of its own, which the trap ends with all that it runs
steps test-e2e >"$pods" 2>&1 &
lane=$!
set +m
finish() {
	if kill -- -"$lane" 2>/dev/null; then wait "$lane" || true; fi # until it has removed its cluster
	rm -f "$pods"
}
trap finish EXIT
trap 'exit 130' INT TERM

echo "tests on pods run beside the unit tests, fuzz targets and the conformance, and are printed at the end"
code=0
steps test-unit fuzz conformance || code=$?
[[ -d /proc/$lane ]] && printf '\nwaiting for the tests on pods\n'
wait "$lane" || code=$?
printf '\ntests on pods\n'
cat "$pods"
exit "$code"
