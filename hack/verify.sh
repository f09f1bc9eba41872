#!/usr/bin/env bash
# Checks the tree as CI does: generated files, formatting, vet, lint with import rules, go.mod files, vulnerabilities.
# All checks run even when one fails; the end lists what failed and how to repair it. Only changes by the
# checks themselves are failures, not uncommitted changes of the checkout.
#
#   hack/verify.sh           all checks
#   hack/verify.sh vet lint  these: generated, gofmt, vet, lint, tidy, vulnerabilities. Nothing else may use the checkout
#                            while "generated" runs, because it writes files anew; the others only read
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The same flags as in the Makefile, so that all share one build cache.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"

# shellcheck source=hack/tool.sh
source hack/tool.sh
# shellcheck source=hack/step.sh
source hack/step.sh
failed=()
started=$SECONDS

for tool in go git; do
	command -v "$tool" >/dev/null || { echo "verify needs $tool; on Debian: apt-get install --yes git, and Go from its own site" >&2; exit 1; }
done

# step TITLE HINT COMMAND... runs one check; HINT is printed if it fails.
step() {
	local title=$1 hint=$2 from=$SECONDS
	shift 2
	printf '== %s\n' "$title"
	if timed "verify: $title" "$@"; then
		printf '   ok, %ss\n' "$((SECONDS - from))"
	else
		printf '   FAILED, %ss: %s\n' "$((SECONDS - from))" "$hint"
		failed+=("$title: $hint")
	fi
}

modules() { git ls-files --cached --others --exclude-standard '*go.mod' | xargs -n1 dirname | sort; }

# Modules with source code. The others only pin tools.
code_modules() { printf '%s\n' . api hack/devcluster hack/release hack/site test/chromium test/clients test/conformance test/s3server; }

# state prints a fingerprint of all changes in git: names, differences, and untracked files.
state() {
	git status --porcelain --untracked-files=all
	git diff HEAD
	git ls-files --others --exclude-standard -z | xargs -0 -r sha256sum
}

generated() {
	local before after
	before=$(state)
	make --no-print-directory generate || return
	after=$(state)
	[[ $before == "$after" ]] && return
	diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") | head -60
	return 1
}

formatted() {
	local files
	files=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 -r ls -d 2>/dev/null | xargs -r gofmt -l)
	[[ -z $files ]] && return
	echo "$files"
	return 1
}

# Tests on a cluster have build tags; here they are only compiled.
vetted() {
	local modules
	mapfile -t modules < <(code_modules)
	go run ./hack/vet -tags e2e,gitops "${modules[@]}"
}

linted() {
	local linter config module status=0
	config=$PWD/.golangci.yml
	linter=$(tool hack/lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint) || return
	for module in $(code_modules); do
		(cd "$module" && "$linter" run --config "$config" --path-mode abs ./...) || status=1
	done
	return $status
}

tidy() {
	local module difference status=0
	for module in $(modules); do
		difference=$(go -C "$module" mod tidy -diff 2>&1) && continue
		printf '   %s/go.mod or go.sum, %s lines; the first are:\n%s\n' "$module" "$(wc -l <<<"$difference")" "$(grep -v '^go: downloading' <<<"$difference" | head -n 15)"
		status=1
	done
	return $status
}

# What ships, as directories of modules with the level and the packages to scan: what is called of modules, where the code is ours; packages
# that are linked, for OpenTofu, whose own code would take longer to analyze than all of ours.
shipped() {
	printf '%s\n' '. symbol ./...' 'api symbol ./...' 'hack/release symbol ./...' \
		'hack/devcluster/opentofu package github.com/opentofu/opentofu/cmd/tofu'
}

# The scanner exits with 3 for findings. An unreachable database is printed, and is no failure.
vulnerabilities() {
	local scanner module level packages output status=0 code
	scanner=$(tool hack/vuln golang.org/x/vuln/cmd/govulncheck) || return
	while read -r module level packages; do
		output=$(cd "$module" && "$scanner" -scan "$level" "$packages" 2>&1)
		code=$?
		if ((code == 0)); then
			echo "   $module: $(tail -n 1 <<<"$output")"
		elif ((code == 3)); then
			printf '%s:\n%s\n' "$module" "$output"
			status=1
		elif grep -qiE 'vulndb|vuln\.go\.dev|no such host|dial tcp|fetching vulnerabilities|proxyconnect|timeout|status 4|status 5' <<<"$output"; then
			printf '   SKIPPED, the vulnerability database cannot be reached from here: %s\n' "$(tail -n 1 <<<"$output")"
			return $status
		else
			printf '%s:\n%s\n' "$module" "$output"
			status=1
		fi
	done < <(shipped)
	return $status
}

(($#)) || set -- generated gofmt vet lint tidy vulnerabilities
for check in "$@"; do
	case $check in
	generated) step "generated files" "run 'make generate' and commit what it changes" generated ;;
	gofmt) step "gofmt" "run gofmt -w on these files" formatted ;;
	vet) step "vet" "repair what hack/vet reports: the analyzers of go vet and ours" vetted ;;
	lint) step "golangci-lint" "repair what the linters report; .golangci.yml has the rules" linted ;;
	tidy) step "go.mod files" "run 'go mod tidy' in the module named above" tidy ;;
	vulnerabilities) step "vulnerabilities" "upgrade the modules named above" vulnerabilities ;;
	*) failed+=("got the check \"$check\", want generated, gofmt, vet, lint, tidy or vulnerabilities") ;;
	esac
done

if ((${#failed[@]})); then
	printf '\nverify failed after %ss:\n' "$((SECONDS - started))" >&2
	printf '  %s\n' "${failed[@]}" >&2
	exit 1
fi
printf '\nverify: %s passed in %ss\n' "$*" "$((SECONDS - started))"
