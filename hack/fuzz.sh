#!/usr/bin/env bash
# Runs every fuzz target of the repository for some time; a target is any function FuzzX of a _test.go file.
#
#   hack/fuzz.sh 5s                  all of them, five seconds each
#   hack/fuzz.sh 10m FuzzParsePath   one of them for long
#
# What a target finds is left as a file below its package's testdata/fuzz: commit it with the fix.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"
duration=${1:-5s}
wanted=${2:-Fuzz[A-Za-z0-9_]*}

found=0
while IFS=: read -r file function; do
	package=./$(dirname "$file")
	printf '%s %s, %s\n' "$package" "$function" "$duration"
	go test -run '^$' -fuzz "^$function\$" -fuzztime "$duration" "$package" | tail -n 3
	found=$((found + 1))
done < <(git grep --untracked -oE "^func $wanted\(" -- '*_test.go' | sed -E 's/:func ([A-Za-z0-9_]+)\(/:\1/')

((found)) || { echo "no fuzz target matches $wanted" >&2; exit 1; }
echo "$found fuzz targets found nothing"
