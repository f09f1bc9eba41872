#!/usr/bin/env bash
# A kcp installation for trials: `hack/demo.sh up` creates it, `hack/demo.sh down` removes all of it.
#
#   up        cluster, operator and installation; prints the next commands. Running it again updates the installation.
#   cluster   only the cluster with cert-manager and the image; tests of tools that install the operator start from there.
#   operator  only the cluster with the operator in it; the end-to-end tests start from there.
#   again     loads the image into the nodes under another name, the second argument.
#   forward   starts the port-forward to the front proxy again, if this host needs one.
#   service   publishes cert-manager's certificates into workspaces by the sync agent; starts the demo if it does not run.
#   service-down  removes what service made.
#   infrastructure  runs the infrastructure provider with its Templates, and orders an instance for each of two tenants; starts the demo
#             if it does not run.
#   images    loads what these Templates run into the nodes, where there is no registry; the end-to-end tests start from there.
#   tofu-image  builds the image of the infrastructure provider's OpenTofu runs and loads it into the nodes; the first build takes minutes.
#   infrastructure-down  removes what infrastructure made.
#   operator-down  removes the operator with its definitions, if it was not there before; the tests of the charts start from there.
#   down      removes what the others made, and the cluster only if up made it.
#
# The cluster is the one of KUBECONFIG if that is set, else one of kind if kind and a container engine are there, else the
# development cluster of hack/devcluster, which needs root and Debian's packages only.
#
#   IMAGE       image of the operator and of all servers; to be set and pushed where the image cannot be loaded into the
#               nodes, that is on any cluster but kind and the development cluster
#   DEMO_PORT   port of the front proxy (6443)
#   DEMO_ROUTE  forward: reach it by a port-forward, although this host may reach Services
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"

state=$root/.demo        # what up made, and how to reach it
local_image=docker.io/local/atoll:dev
image=${IMAGE:-$local_image}
namespace=kcp            # that of config/samples
kind_cluster=atoll-demo
heartbeat=10             # seconds after which a step that has nothing new to tell says so
cert_manager_version=v1.21.2
cert_manager_manifest=https://github.com/cert-manager/cert-manager/releases/download/$cert_manager_version/cert-manager.yaml

say() { printf '%s\n' "$*"; }
step() { printf '\n[%3ss] %s\n' "$SECONDS" "$*"; }
fail() { printf '\nerror: %s\n' "$*" >&2; exit 1; }
kubectl() { command "$kubectl" --kubeconfig "$state/kubeconfig" "$@"; }
# devcluster runs the tool of the development cluster.
devcluster() {
	build_devcluster
	bin/tools/devcluster "$@"
}
build_devcluster() {
	[[ -n ${devcluster_built:-} ]] || make --no-print-directory tools >&2
	devcluster_built=yes
}
remember() { mkdir -p "$state" && printf '%s\n' "$2" >"$state/$1"; }
recall() { cat "$state/$1" 2>/dev/null || true; }

# claim WHAT NAMESPACE remembers that the demo makes WHAT in a namespace of its own, which its removal deletes. It fails if the
# namespace is there before.
claim() {
	[[ $(recall "$1") != yes ]] || return 0
	local found
	found=$(kubectl get namespace "$2" --ignore-not-found --output name) || fail "the cluster does not tell whether it has a namespace $2"
	[[ -z $found ]] || fail "the cluster has a namespace $2, which the demo would delete at its end. Use another cluster, or remove it first: kubectl delete namespace $2"
	remember "$1" yes
}

# wait_for TITLE SECONDS COMMAND... polls until COMMAND succeeds. COMMAND prints the current state, one line for each
# object that is not ready. New lines are printed with the elapsed time, and that it still waits if there are none.
wait_for() {
	local title=$1 limit=$2 from=$SECONDS told=$SECONDS now shown=
	shift 2
	step "$title"
	while ! now=$("$@" 2>&1); do
		if [[ $now != "$shown" ]]; then
			grep -vxF -e "$shown" <<<"$now" | cut -c1-170 | sed "s/^/   $((SECONDS - from))s  /" || true
			shown=$now told=$SECONDS
		elif ((SECONDS - told >= heartbeat)); then
			say "   $((SECONDS - from))s  still waiting"
			told=$SECONDS
		fi
		if ((SECONDS - from >= limit)); then
			printf '%s\n' "$now" | sed 's/^/   /' >&2
			return 1
		fi
		sleep 0.5
	done
	say "   done after $((SECONDS - from))s"
}

# shellcheck source=hack/demo/cluster.sh
source hack/demo/cluster.sh
# shellcheck source=hack/demo/service.sh
source hack/demo/service.sh
# shellcheck source=hack/demo/images.sh
source hack/demo/images.sh
# shellcheck source=hack/demo/infrastructure.sh
source hack/demo/infrastructure.sh

# --- the installation ------------------------------------------------------------------------------------------------

port_open() { timeout 2 bash -c "</dev/tcp/$1/$2" 2>/dev/null; }

# choose_address decides under which host and port clients reach the front proxy. The same address must lead there from
# this host and from the shard's pods, or the pods need a private one. It stays the same once it is chosen.
#   cluster IP   where this host reaches Services, as on the development cluster: a fixed address out of the Services'
#                range, valid on the host and in pods
#   localhost    on all other clusters (kind, for example): through kubectl port-forward; pods use the Service's name
choose_address() {
	[[ -n $(recall address) ]] && return
	local service_ip port=${DEMO_PORT:-6443} used last
	service_ip=$(kubectl -n default get service kubernetes -o 'jsonpath={.spec.clusterIP}')
	if [[ ${DEMO_ROUTE:-} != forward && $service_ip == *.*.*.* ]] && port_open "$service_ip" 443; then
		used=$(kubectl get services --all-namespaces -o 'jsonpath={range .items[*]}{.spec.clusterIP}{"\n"}{end}')
		# The first sixteen addresses of the range are not allocated dynamically while others are free.
		for ((last = 11; last < 15; last++)); do
			grep -qx "${service_ip%.*}.$last" <<<"$used" || break
		done
		remember route cluster-ip
		remember address "${service_ip%.*}.$last:$port"
		return
	fi
	while port_open 127.0.0.1 "$port"; do ((port++)); done
	remember route forward
	remember address "localhost:$port"
}

# installation_manifests writes .demo/installation: config/development with that address.
installation_manifests() {
	local address host port private= service= addresses="[127.0.0.1]"
	address=$(recall address)
	host=${address%:*} port=${address##*:}
	if [[ $(recall route) == forward ]]; then
		private="privateHostname: frontproxy-front-proxy.$namespace.svc.cluster.local"
	else
		service="serviceTemplate: {spec: {clusterIP: $host}}"
		addresses="[127.0.0.1, $host]"
	fi
	mkdir -p "$state/installation"
	cat >"$state/installation/kustomization.yaml" <<-YAML
		# Written by hack/demo.sh: config/development under an address that this host and the pods reach.
		apiVersion: kustomize.config.k8s.io/v1beta1
		kind: Kustomization
		resources:
		- ../../config/development
		patches:
		- patch: |
		    apiVersion: operator.kcp.io/v1alpha1
		    kind: RootShard
		    metadata: {name: root, namespace: $namespace}
		    spec:
		      external:
		        hostname: "$host"
		        port: $port
		        $private
		- patch: |
		    apiVersion: operator.kcp.io/v1alpha1
		    kind: FrontProxy
		    metadata: {name: frontproxy, namespace: $namespace}
		    spec:
		      $service
		      certificateTemplates:
		        server:
		          spec:
		            ipAddresses: $addresses
	YAML
}

# conditions prints one line per object that is not ready, and succeeds when all are.
conditions() {
	local lines
	lines=$(kubectl -n "$namespace" get rootshard/root frontproxy/frontproxy kubeconfig/kubeconfig-kcp-admin -o go-template='
{{- range .items}}{{$o := .}}{{$ready := "False"}}{{$text := "the operator has not looked at it yet"}}
{{- range .status.conditions}}{{if eq .type "Ready"}}{{$text = printf "%s: %s" .reason .message}}
{{- if and (eq .status "True") (eq $o.metadata.generation (or $o.status.observedGeneration 0))}}{{$ready = "True"}}{{end}}{{end}}{{end}}
{{- if eq $ready "False"}}{{.kind}} {{.metadata.name}}: {{$text}}{{"\n"}}{{end}}{{end}}')
	[[ -z $lines ]] && return
	printf '%s\n' "$lines"
	return 1
}

admin() { command "$kubectl" --kubeconfig "$state/admin.kubeconfig" --request-timeout 5s "$@"; }

answers() {
	local refusal
	refusal=$(admin get workspaces 2>&1 >/dev/null) && return
	tail -n 1 <<<"$refusal" # kubectl prints every attempt above it
	return 1
}

describe_failure() {
	kubectl -n "$namespace" get rootshards,frontproxies,kubeconfigs,pods,certificates >&2 || true
	kubectl -n "$namespace" get events --sort-by .lastTimestamp 2>/dev/null | tail -n 20 >&2 || true
	kubectl -n "$namespace" logs --all-containers --prefix --tail 15 -l app.kubernetes.io/name=kcp >&2 || true
}

# forward keeps one kubectl port-forward running; it starts again when the pod behind it is replaced.
forward() {
	[[ $(recall route) == forward ]] || { say "this host reaches the front proxy without a port-forward"; return; }
	local port
	port=$(recall address) port=${port##*:}
	forward_stop
	setsid bash -c 'while :; do "$0" --kubeconfig "$1" -n "$2" port-forward service/frontproxy-front-proxy "$3:$3"; sleep 1; done' \
		"$kubectl" "$state/kubeconfig" "$namespace" "$port" >"$state/forward.log" 2>&1 </dev/null &
	remember forward.pid $!
}

forward_stop() {
	local pid
	pid=$(recall forward.pid)
	# The process leads a session of its own; a pid that was reused by another process does not, and is ignored.
	if [[ -n $pid ]] && grep -qs 'port-forward' "/proc/$pid/cmdline"; then kill -- "-$pid" 2>/dev/null || true; fi
	rm -f "$state/forward.pid"
}

up() {
	install
	print_commands
}

# install makes the cluster, the operator and the installation.
install() {
	prepare_cluster
	claim made-installation "$namespace"
	install_operator
	choose_address
	installation_manifests

	local applied took
	step "applying a RootShard, a FrontProxy and a Kubeconfig: kubectl apply -k .demo/installation"
	applied=$(date +%s%N)
	kubectl apply -k "$state/installation" | sed 's/^/   /'
	wait_for "waiting for the installation" 300 conditions || { describe_failure; fail "the installation did not get ready within 300 s, see above"; }

	kubectl -n "$namespace" get secret admin-kubeconfig -o 'jsonpath={.data.kubeconfig}' | base64 --decode >"$state/admin.kubeconfig"
	chmod 600 "$state/admin.kubeconfig"
	[[ $(recall route) != forward ]] || forward
	wait_for "asking the front proxy at https://$(recall address) with the admin's kubeconfig" 60 answers ||
		{ describe_failure; fail "the installation is Ready and does not respond, see above"; }
	took=$((($(date +%s%N) - applied) / 1000000))
	say ""
	say "Ready: $((took / 1000)).$(printf '%03d' $((took % 1000))) s from kubectl apply to a working kubeconfig."
}

print_commands() {
	cat <<-TEXT

		The admin's kubeconfig is .demo/admin.kubeconfig. Use it, with the plug-ins of this repository:

		  export KUBECONFIG=$state/admin.kubeconfig PATH=$root/bin:\$PATH

		and try:

		  kubectl create workspace hello     # create a workspace
		  kubectl ws hello                   # enter it
		  kubectl get namespaces             # list what is in it

		Publish a service of the cluster into workspaces: make demo-service
		Offer databases and applications to tenants:      make demo-infrastructure
		The cluster underneath: kubectl --kubeconfig $state/kubeconfig -n $namespace get rootshards,frontproxies,kubeconfigs,pods
		When you are done: make demo-down
	TEXT
	[[ $(recall route) != forward ]] ||
		say "This host reaches the front proxy through a port-forward in the background; 'hack/demo.sh forward' starts it again."
}

# --- the end ---------------------------------------------------------------------------------------------------------

# remove_objects removes the demo from a cluster that is kept. The namespace is deleted last, after the operator has
# finalized its objects.
remove_objects() {
	kubectl version >/dev/null 2>&1 || { say "   the cluster does not respond; its objects are kept"; return; }
	[[ $(recall service) != yes ]] || service_down
	[[ $(recall infrastructure) != yes ]] || infrastructure_down
	if [[ $(recall made-installation) == yes ]]; then
		step "deleting the installation, with its workspaces"
		kubectl -n "$namespace" annotate rootshards.operator.kcp.io --all --overwrite operator.kcp.io/force-delete=true >/dev/null
		kubectl -n "$namespace" delete kubeconfigs.operator.kcp.io,frontproxies.operator.kcp.io,rootshards.operator.kcp.io --all --wait --timeout 120s --ignore-not-found | sed 's/^/   /'
		kubectl delete namespace "$namespace" --wait --timeout 120s --ignore-not-found | sed 's/^/   /'
	fi
	[[ $(recall made-operator) == yes ]] || return 0
	local found
	found=$(installations) || fail "the installations of the cluster cannot be listed, so the operator is kept: see above, and try again"
	if [[ -n $found ]]; then
		say "   other namespaces have installations, so the operator is kept. To remove it later:"
		say "     kubectl delete -k $(recall operator-manifests)"
		return
	fi
	remove_operator
}

# installations prints the objects of the operator's kinds in all namespaces, and fails where the cluster does not tell.
installations() {
	local kinds
	kinds=$(kubectl get customresourcedefinitions {rootshards,frontproxies,kubeconfigs}.operator.kcp.io --ignore-not-found --output 'jsonpath={range .items[*]}{.metadata.name} {end}') || return
	[[ -z $kinds ]] || kubectl get "$(tr ' ' ',' <<<"${kinds% }")" --all-namespaces --output name
}

# remove_operator deletes the operator's definitions, too, and with these all objects of its kinds in all namespaces.
remove_operator() {
	step "deleting the operator"
	kubectl delete -k "$(recall operator-manifests)" --wait --timeout 120s --ignore-not-found >/dev/null
}

# say_what_stays names what the demo has brought to this machine and does not remove: it makes the next start one of seconds.
say_what_stays() {
	local cache=${ATOLL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/atoll size
	say "What stays, so that the next start takes seconds:"
	if [[ -d $cache ]]; then
		size=$(du -sh "$cache" 2>/dev/null | cut -f1)
		say "   $cache (${size:-unknown size}): programs of Kubernetes and of the demo; rm -rf it to remove them"
	fi
	say "   Go's caches, which other projects share: go clean -cache -modcache removes them"
	if [[ $1 == yes ]]; then say "   those Debian packages that the development cluster has installed: containerd runc containernetworking-plugins iptables conntrack iproute2"; fi
}

down() {
	local own_cluster=no
	[[ -d $state ]] || { say "nothing to remove: there is no .demo"; return; }
	[[ $(recall made-cluster) != yes || $(recall cluster) == kind ]] || own_cluster=yes
	forward_stop
	if [[ $(recall made-cluster) != yes ]]; then
		kubectl=$(type -P kubectl || echo "$root/bin/kubectl")
		[[ ! -s $state/kubeconfig ]] || remove_objects
	elif [[ $(recall cluster) == kind ]]; then
		step "deleting the kind cluster $kind_cluster"
		kind delete cluster --name "$kind_cluster"
	else
		step "ending the development cluster"
		devcluster down
	fi
	[[ ! -L bin/kubectl ]] || rm -f bin/kubectl
	rm -rf "$state"
	step "the demo and its files are removed"
	say_what_stays "$own_cluster"
}

case ${1:-up} in
up) up ;;
cluster) prepare_cluster ;;
operator)
	prepare_cluster
	install_operator
	;;
again)
	find_kubectl
	load_again "${2:?usage: hack/demo.sh again <repository:tag>}"
	;;
forward)
	find_kubectl
	forward
	;;
service) service ;;
service-down)
	[[ $(recall service) == yes ]] || fail "make demo-service has made nothing here"
	service_down
	;;
images)
	find_kubectl
	load_server_images
	;;
tofu-image)
	find_kubectl
	load_tofu_image
	;;
infrastructure) infrastructure ;;
infrastructure-down)
	[[ $(recall infrastructure) == yes ]] || fail "make demo-infrastructure has made nothing here"
	infrastructure_down
	;;
operator-down)
	find_kubectl
	[[ $(recall made-operator) == yes ]] || fail "the operator was in this cluster before, and is kept"
	found=$(installations)
	[[ -z $found ]] || fail "the operator is kept, because there are installations: $(tr '\n' ' ' <<<"$found")"
	remove_operator
	;;
down) down ;;
*) fail "usage: hack/demo.sh up|cluster|operator|again|forward|service|service-down|images|tofu-image|infrastructure|infrastructure-down|operator-down|down" ;;
esac
