# shellcheck shell=bash
# Programs of modules that only pin tools, built into the user's cache. Sourced by the scripts of this directory.

cache=${ATOLL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/atoll

# tool MODULE PACKAGE [LDFLAGS] builds a tool once per content of its go.sum and prints the path of the binary.
tool() {
	local module=$1 package=$2 ldflags=${3:-} binary
	binary=$cache/${package##*/}-$(cat "$module/go.mod" "$module/go.sum" | sha256sum | cut -c1-12)-$(go env GOVERSION)
	if [[ ! -x $binary ]]; then
		mkdir -p "$cache"
		echo "   building ${package##*/}, once for this version" >&2
		go -C "$module" build -p 2 -ldflags "$ldflags" -o "$binary.new" "$package" && mv "$binary.new" "$binary" || return
	fi
	echo "$binary"
}
