#!/usr/bin/env bash
# Prints what `make test` installs and does on this machine, before it starts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${ATOLL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/atoll
absent=()
# Programs with the packages that tests install for them: test/debian, hack/devcluster/toolchain.
while read -r program package; do
	[[ -n $(PATH=$PATH:/usr/sbin:/sbin type -P "$program") || -e $program ]] || absent+=("$package")
done <<-LIST
	chromium chromium
	prometheus prometheus
	containerd containerd
	runc runc
	/usr/lib/cni/bridge containernetworking-plugins
	iptables-restore iptables
	conntrack conntrack
	ip iproute2
LIST

cat <<-TEXT
	make test runs:
	  1. unit tests, and tests of servers in the test process and as processes: they need Go only
	  2. those of other modules, such as the portal and the documentation site in a browser
	  3. every fuzz target for five seconds
	  4. Kubernetes' own end-to-end specs, Helm, kubectl and controller-runtime in workspaces
	  5. beside 2 to 4, tests on pods: on the cluster of KUBECONFIG, or of kind, or on one that it makes and removes, which needs root
	About 50 minutes on two processors, half an hour more if Go's cache is empty. \`make test-unit\` is 1 and 2 alone.
TEXT
((${#absent[@]} == 0)) || echo "It installs Debian packages, where it is root: ${absent[*]}. Tests that need them are skipped where it is not."
compgen -G "$cache/devcluster/v*" >/dev/null || echo "It builds Kubernetes from source once, into $cache/devcluster."
