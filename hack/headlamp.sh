#!/usr/bin/env bash
# Checks, tests and packages the plugin for Headlamp, plugins/headlamp. It needs Node.js 20 and npm, and is therefore no part of CI, which
# needs nothing but Go.
#
#   hack/headlamp.sh package  check, test and build: the archive, and its manifest for Artifact Hub, are then in bin/headlamp
#   hack/headlamp.sh test     the same, then test what was built against a shard, which this builds and starts
#
#   HEADLAMP_URL            where the archive is published, without its name
#   HEADLAMP_REPOSITORY_ID  the identifier of the repository at Artifact Hub; writes artifacthub-repo.yml, too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The same flags as in the Makefile, so that all share one build cache.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"
# Tests end when they have run, also at a terminal.
export CI=true

plugin=plugins/headlamp
# The folder of the archive, and by it that of the plugin in Headlamp, has the name of the folder that is packaged.
name=atoll-workspaces
out=$PWD/bin/headlamp

for tool in node npm; do
	command -v "$tool" >/dev/null || { echo "the plugin for Headlamp needs $tool: install Node.js 20 or newer" >&2; exit 1; }
done

run() { (cd "$plugin" && npm run --silent "$@"); }

package() {
	# Scripts of packages are for Headlamp's own tests in a browser.
	[[ $plugin/node_modules/.package-lock.json -nt $plugin/package-lock.json ]] || (cd "$plugin" && npm ci --ignore-scripts --no-audit --no-fund)
	run format -- --check
	run lint
	run tsc
	run test
	run build
	rm -rf "$out"
	mkdir -p "$out"
	ln -s "../../$plugin" "$out/$name"
	"$plugin/node_modules/.bin/headlamp-plugin" package "$out/$name" "$out"
	rm "$out/$name"
	manifest
	echo "the archive and its manifest are in bin/headlamp"
}

# manifest completes the manifest for Artifact Hub: the version, where the archive is published, and its checksum.
manifest() {
	local version archive sum url
	version=$(node -p "require('./$plugin/package.json').version")
	archive=$name-$version.tar.gz
	sum=$(sha256sum "$out/$archive" | cut -d ' ' -f 1)
	url=${HEADLAMP_URL:-https://github.com/atoll-dev/atoll/releases/download/headlamp-$version}
	sed -e "s|@VERSION@|$version|; s|@CREATED@|$(date -u +%Y-%m-%dT%H:%M:%SZ)|; s|@URL@|$url/$archive|; s|@CHECKSUM@|$sum|" \
		"$plugin/artifacthub-pkg.yml.in" >"$out/artifacthub-pkg.yml"
	cp "$plugin/README.md" "$out/"
	# Artifact Hub gives a repository an identifier, and verifies by it who publishes.
	if [[ -n ${HEADLAMP_REPOSITORY_ID:-} ]]; then echo "repositoryID: $HEADLAMP_REPOSITORY_ID" >"$out/artifacthub-repo.yml"; fi
}

# Its own directory, port and process: a server that runs on this machine is left alone.
against_shard() {
	local directory port server deadline=$((SECONDS + 300))
	go build -o bin/kcp ./cmd/kcp
	directory=$(mktemp -d)
	port=$(node -e "const s = require('net').createServer().listen(0, '127.0.0.1', () => { console.log(s.address().port); s.close() })")
	echo 'nobody-token,nobody,1' >"$directory/tokens.csv"
	bin/kcp start --root-directory="$directory" --bind-address=127.0.0.1 --secure-port="$port" \
		--embedded-etcd-client-port=0 --embedded-etcd-peer-port=0 --token-auth-file="$directory/tokens.csv" >"$directory/log" 2>&1 &
	server=$!
	# shellcheck disable=SC2064 # the values of now
	trap "kill $server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -rf '$directory'" EXIT
	until grep -q '"Ready\.' "$directory/log"; do
		if [[ ! -d /proc/$server ]] || ((SECONDS > deadline)); then
			tail -n 20 "$directory/log" >&2
			echo "the shard has not become ready" >&2
			exit 1
		fi
		sleep 0.2
	done
	VITE_KUBECONFIG=$directory/admin.kubeconfig run test
}

case ${1:-} in
package) package ;;
test)
	package
	against_shard
	;;
*) echo "got \"${1:-}\", want package or test" >&2; exit 1 ;;
esac
