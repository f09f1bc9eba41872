#!/usr/bin/env bash
# Runs every fuzz target of the repository for some time; a target is any function FuzzX of a _test.go file.
#
#   hack/fuzz.sh 5s                  all of them, five seconds each
#   hack/fuzz.sh 10m FuzzParsePath   one of them, for ten minutes
#
# Coverage guidance compiles all of Kubernetes again with counters, which takes minutes. Only runs of minutes use it; runs
# of seconds use the normal test binaries without guidance.
#
# A failing input is stored below testdata/fuzz of the package: commit it with the fix.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"
duration=${1:-5s}
wanted=${2:-Fuzz[A-Za-z0-9_]*}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

guided() { go test -run '^$' -fuzz "^$2\$" -fuzztime "$duration" "./$1"; }

blind() {
	local binary=$scratch/${1//\//-}.test
	[[ -x $binary ]] || go test -c -vet=off -ldflags '-s -w' -o "$binary" "./$1"
	(cd "$1" && "$binary" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$duration" -test.fuzzcachedir "$scratch/corpus")
}

# ended_late reports whether a run failed only because its time was over: Go reports that as a failure if the time ends within the
# call of a worker. A failing input is named in the output.
ended_late() { grep -q 'context deadline exceeded' "$scratch/output" && ! grep -qE 'Failing input|panic:' "$scratch/output"; }

# fuzz runs one target, and again if its end was reported as a failure.
fuzz() {
	local attempt
	for attempt in 1 2 3; do
		$how "$1" "$2" >"$scratch/output" 2>&1 && return
		ended_late || return
	done
	return 1
}

how=guided
[[ $duration =~ ^[0-9]+s$ ]] && how=blind
found=0
while IFS=: read -r file function; do
	printf '%s %s, %s\n' "$(dirname "$file")" "$function" "$duration"
	fuzz "$(dirname "$file")" "$function" || { cat "$scratch/output"; exit 1; }
	grep execs "$scratch/output" | tail -n 1
	found=$((found + 1))
done < <(git grep --untracked -oE "^func $wanted\(" -- '*_test.go' | sed -E 's/:func ([A-Za-z0-9_]+)\(/:\1/')

((found)) || { echo "no fuzz target matches $wanted" >&2; exit 1; }
echo "$found fuzz targets found nothing"
