#!/usr/bin/env bash
# Builds and tests Atoll against a newer Kubernetes than go.mod pins, by default the newest release or pre-release of
# the next minor version that the module proxy has. It works in a scratch copy and does not change the checkout. It is not
# part of CI.
#
#   hack/next.sh                       the newest release or pre-release
#   hack/next.sh -v 1.38.0-alpha.2     this version
#   hack/next.sh ./shardserver/...     only these packages
#   hack/next.sh -k                    keep the scratch copy and print its path
#
# It prints the packages that do not compile and the tests that fail, with their output, and exits with 1 if there are any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"
version='' keep=false packages=()
while (($#)); do
	case $1 in
	-h | --help) usage && exit ;;
	-v) version=${2:?-v needs a version}; version=${version#v}; shift ;;
	-k) keep=true ;;
	-*) usage >&2 && exit 2 ;;
	*) packages+=("$1") ;;
	esac
	shift
done
((${#packages[@]})) || packages=(./...)

current=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
current=${current#v}
next=1.$(($(cut -d. -f2 <<<"$current") + 1))

# A release is complete when the proxy has all of its modules that Atoll is built of.
modules=$(go list -deps -test -f '{{with .Module}}{{.Path}} {{.Version}}{{end}}' ./... | grep -E "^k8s\.io/\S+ v[01]\.${current#1.}\$" | cut -d' ' -f1 | sort -u)
complete() {
	local wanted=() module
	for module in $modules; do
		if [[ $module == k8s.io/kubernetes ]]; then wanted+=("$module@v$1"); else wanted+=("$module@v0.${1#1.}"); fi
	done
	go mod download "${wanted[@]}" 2>&1 >/dev/null
}
if [[ -z $version ]]; then
	for minor in $(go list -m -versions k8s.io/apiserver | tr ' ' '\n' | grep "^v0\.${next#1.}\." | sort -rV); do
		candidate=1.${minor#v0.}
		if reasons=$(complete "$candidate"); then version=$candidate && break; fi
		# One reason suffices: a newer Go that the modules require, or a module that is missing.
		reason=$({ grep -m 1 'requires go' <<<"$reasons" || head -n 1 <<<"$reasons"; } | cut -c 1-200)
		echo "Kubernetes $candidate cannot be used: $reason"
	done
	if [[ -z $version ]]; then
		echo "the module proxy has no complete release or pre-release of Kubernetes $next: nothing to test"
		exit
	fi
fi

scratch=$(mktemp -d)
copy=$scratch/atoll
$keep || trap 'rm -rf "$scratch"' EXIT
mkdir "$copy"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
	if [[ -e $file ]]; then printf '%s\0' "$file"; fi
done | tar --null -T - -c | tar -x -C "$copy"
echo "Kubernetes $version (go.mod: $current), in $copy"
cd "$copy"

sed -E -i "/k8s\.io\//s/v0\.${current#1.}(\s|\$)/v0.${version#1.}\1/; s#(k8s\.io/kubernetes) v$current#\1 v$version#" go.mod api/go.mod
(cd api && go mod tidy) >"$scratch/tidy" 2>&1 && go mod tidy >>"$scratch/tidy" 2>&1 || {
	cat "$scratch/tidy"
	echo "the modules do not resolve with Kubernetes $version" >&2
	exit 1
}

failed=0
echo "compiling"
# vet type-checks the packages and their tests, and continues after one that does not compile.
if ! go vet -tags e2e "${packages[@]}" >"$scratch/vet" 2>&1; then
	failed=1
	cat "$scratch/vet"
fi
echo "testing what compiles"
if ! go test "${packages[@]}" >"$scratch/test" 2>&1; then
	failed=1
	grep -vE '^(ok|\?) ' "$scratch/test" || true
fi

broken() { sed -nE 's/^FAIL\s+(\S+) \[(build|setup) failed\]$/\1/p' "$scratch/test" | sort -u; }
printf '\nKubernetes %s: %d packages do not compile, %d tests fail, %d packages pass\n' "$version" \
	"$(broken | wc -l)" "$(grep -cE '^--- FAIL: ' "$scratch/test" || true)" "$(grep -cE '^ok\s' "$scratch/test" || true)"
broken | sed 's/^/  does not compile: /'
sed -nE 's/^--- FAIL: (\S+).*/  fails: \1/p' "$scratch/test"
if $keep; then echo "kept: $copy"; fi
exit $failed
