#!/usr/bin/env bash
# Finds flaky tests: runs the unit tests several times while other processes take the processors, and lists each test that failed at
# least once, with the number of its failures. The exit code is 1 if there is one.
#
#   hack/flaky.sh                        all packages of all modules that `make test-unit` tests, five runs
#   hack/flaky.sh -n 20 ./shardserver/lifecycle/...
#   hack/flaky.sh -n 50 -run TestQuota ./shardserver/lifecycle/quota
#   hack/flaky.sh -C test/chromium ./portal
#
#   -n RUNS    number of runs (5)
#   -load N    processes that compute all the time (one for each processor); 0 for none
#   -run EXPR  only these tests
#   -C MODULE  packages of another module than that of the root directory
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"
runs=5 load=$(getconf _NPROCESSORS_ONLN) only=. modules=()
number() { [[ ${2:-} =~ ^[0-9]+$ ]] || { echo "$1: got \"${2:-}\", want a number" >&2; exit 2; }; }
while (($#)); do
	case $1 in
	-n) number "$@"; runs=$2; shift 2 ;;
	-load) number "$@"; load=$2; shift 2 ;;
	-run) only=${2:?-run wants an expression}; shift 2 ;;
	-C)
		[[ -f ${2:-}/go.mod ]] || { echo "-C: got \"${2:-}\", want a directory with a go.mod" >&2; exit 2; }
		modules=("$2")
		shift 2
		;;
	-h | --help) sed -n '2,/^set/{s/^# \{0,1\}//;/^set/d;p}' "$0"; exit ;;
	-*) echo "unknown flag $1; hack/flaky.sh --help lists them" >&2; exit 2 ;;
	*) break ;;
	esac
done
if ((${#modules[@]} == 0)); then
	modules=(.)
	# Those of `make test-unit`.
	(($#)) || modules+=(api hack/devcluster hack/release hack/site test/chromium)
fi
(($#)) || set -- ./...

scratch=$(mktemp -d)
busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true; rm -rf "$scratch"' EXIT
go build -o "$scratch/timing" ./hack/timing
export ATOLL_TIMING=$scratch/notes
: >"$ATOLL_TIMING"
for ((i = 0; i < load; i++)); do
	bash -c 'while :; do :; done' &
	busy+=($!)
done

for ((run = 1; run <= runs; run++)); do
	echo "run $run of $runs, beside $load busy processes"
	for module in "${modules[@]}"; do
		"$scratch/timing" test -- go -C "$module" test -vet=off -count 1 -timeout 60m -run "$only" "$@" || true
	done
done

failed=$(sed -n 's/^failure\t\([^\t]*\).*/\1/p' "$ATOLL_TIMING" | sort | uniq -c | sort -rn)
if [[ -n $failed ]]; then
	printf '\nfailures in %d runs:\n%s\n' "$runs" "$failed"
	exit 1
fi
tests=$(grep -c '^test' "$ATOLL_TIMING" || true)
((tests > 0)) || { echo "no test ran" >&2; exit 1; }
printf '\nno test failed in %d runs of %d tests\n' "$runs" "$((tests / runs))"
