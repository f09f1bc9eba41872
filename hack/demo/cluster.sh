# shellcheck shell=bash
# The cluster of the demo and the end-to-end tests: how it is selected, and how the image, cert-manager and the operator
# are installed in it. Sourced by hack/demo.sh, whose functions and variables it uses.

# --- the cluster -----------------------------------------------------------------------------------------------------

container_engine() { docker info >/dev/null 2>&1 || podman info >/dev/null 2>&1; }

choose_cluster() {
	mkdir -p "$state"
	[[ -n $(recall cluster) ]] && return
	# After a demo, KUBECONFIG may still be the file that the demo printed.
	if [[ -n ${KUBECONFIG:-} && $KUBECONFIG != "$state/"* ]]; then
		remember cluster existing
	elif command -v kind >/dev/null && container_engine; then
		remember cluster kind
	else
		remember cluster devcluster
	fi
}

cluster_up() {
	choose_cluster
	case $(recall cluster) in
	existing)
		[[ -n ${KUBECONFIG:-} || -s $state/kubeconfig ]] || fail "the demo runs in a cluster of yours; set KUBECONFIG to it"
		step "using the cluster of KUBECONFIG"
		find_kubectl
		if [[ -n ${KUBECONFIG:-} && $KUBECONFIG != "$state/"* ]]; then
			command "$kubectl" config view --raw --minify --flatten >"$state/kubeconfig.new" && mv "$state/kubeconfig.new" "$state/kubeconfig"
		fi
		;;
	kind)
		if ! kind get clusters 2>/dev/null | grep -qx "$kind_cluster"; then
			step "creating the kind cluster $kind_cluster"
			remember made-cluster yes
			kind create cluster --name "$kind_cluster" --kubeconfig "$state/kubeconfig" --wait 120s
		else
			kind get kubeconfig --name "$kind_cluster" >"$state/kubeconfig"
		fi
		find_kubectl
		;;
	devcluster)
		build_devcluster # in this shell, once
		if ! devcluster status >/dev/null 2>&1; then
			step "starting the development cluster"
			remember made-cluster yes
		fi
		devcluster up | tee "$state/up.log"
		cp "$(devcluster kubeconfig)" "$state/kubeconfig"
		find_kubectl
		;;
	esac
	chmod 600 "$state/kubeconfig"
	kubectl version >/dev/null 2>&1 || fail "the cluster of $state/kubeconfig does not respond"
}

# announce says what prepare_cluster will do, and how long that takes on this machine.
announce() {
	local processors seconds=40
	choose_cluster
	processors=$(getconf _NPROCESSORS_ONLN)
	say "What follows, on $(recall cluster | sed 's/existing/the cluster of KUBECONFIG/; s/kind/a cluster of kind/; s/devcluster/a development cluster that this makes on this machine/'):"
	if [[ $(recall cluster) == devcluster ]]; then
		if compgen -G "${ATOLL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/atoll/devcluster/v*/coredns" >/dev/null; then
			say "  - a Kubernetes, built before, is started"
			((seconds += 20))
		else
			say "  - Kubernetes is built from source, once; missing packages of Debian are installed: containerd, runc and what they need"
			((seconds += 20 + build_seconds_kubernetes / processors))
		fi
	fi
	say "  - Atoll's programs are built, and an image of them is loaded into the cluster"
	if [[ ! -x bin/kcp ]]; then ((seconds += build_seconds_atoll / processors)); fi
	say "  - the operator is installed, and what you have asked for"
	say "About $(((seconds + 59) / 60)) minutes with $processors processors; less if Go's cache has parts. Builds tell how far they are."
}

# Processor seconds of the builds with an empty cache.
build_seconds_kubernetes=900 build_seconds_atoll=600

# find_kubectl sets kubectl: the one in PATH, else the one that the development cluster was built with, whose folder
# devcluster prints at its end. That one is linked into bin/ so that the commands printed at the end work too.
find_kubectl() {
	kubectl=$(type -P kubectl || true)
	if [[ -z $kubectl && $(recall cluster) == devcluster ]]; then
		mkdir -p bin
		ln -sf "$(sed -n 's/.*export PATH=\(.*\):\$PATH.*/\1/p' "$state/up.log")/kubectl" bin/kubectl
		kubectl=$root/bin/kubectl
	fi
	[[ -n $kubectl ]] || fail "kubectl is missing in PATH; 'go -C hack/devcluster build -o $root/bin/kubectl k8s.io/kubernetes/cmd/kubectl' builds it"
}

# image_route prints how images get into this cluster: kind, devcluster or registry.
image_route() {
	local context
	context=$(command "$kubectl" --kubeconfig "$state/kubeconfig" config current-context)
	case $(recall cluster)/$context in
	devcluster/* | kind/*) recall cluster ;;
	existing/kind-*) command -v kind >/dev/null && echo kind || echo registry ;;
	existing/*)
		if [[ -n ${KUBECONFIG:-} && $KUBECONFIG == "$(devcluster kubeconfig 2>/dev/null)" ]]; then echo devcluster; else echo registry; fi
		;;
	esac
}

load_image() {
	local route content
	route=$(image_route)
	if [[ $image != "$local_image" && $route == registry ]]; then
		say "   using $image, which the nodes must be able to pull"
		return
	fi
	[[ $route != registry ]] || fail "the image cannot be loaded into the nodes of this cluster. Push it to a registry of yours:
  make images IMAGE=<registry>/atoll:dev   and push it with your container engine, then
  IMAGE=<registry>/atoll:dev make demo"

	step "building the binaries and the image $image"
	make --no-print-directory image-tar IMAGE="$image"
	content=$(sha256sum bin/image.tar | cut -d' ' -f1)
	if [[ $(recall image) == "$content" ]]; then
		say "   the nodes have this image already"
		return
	fi
	load_archive "$route" bin/image.tar
	remember image "$content"
	remember restart yes # same name, other content: running pods must be restarted
}

# load_again NAME loads the image that was built last under another name, too, as the next version for a
# rollout. With a registry, push that image yourself.
load_again() {
	local route
	route=$(image_route)
	[[ $route != registry ]] || return 1
	devcluster build-image --name "$1" --tar "$root/bin/image-next.tar" --licenses "$root/bin/licenses.txt" \
		"$root"/bin/{operator,kcp,kcp-front-proxy,cache-server,virtual-workspaces,sync-agent,infrastructure-provider,etcd}
	load_archive "$route" bin/image-next.tar
}

# load_archive ROUTE TAR loads an archive of images into the nodes.
load_archive() {
	case $1 in
	devcluster) devcluster load-image "$root/$2" ;;
	kind) kind load image-archive "$root/$2" --name "$(kind_name)" ;;
	esac
}

kind_name() {
	local context
	context=$(command "$kubectl" --kubeconfig "$state/kubeconfig" config current-context)
	echo "${context#kind-}"
}

cert_manager_answers() {
	kubectl get crd certificates.cert-manager.io issuers.cert-manager.io -o name >/dev/null 2>&1 || { echo "its definitions are missing"; return 1; }
	# If an Issuer is accepted, the webhook works, too, if there is one.
	kubectl apply --dry-run=server -f - >/dev/null <<-YAML || return
		apiVersion: cert-manager.io/v1
		kind: Issuer
		metadata: {name: probe, namespace: default}
		spec: {selfSigned: {}}
	YAML
}

cert_manager() {
	if ! kubectl get crd certificates.cert-manager.io >/dev/null 2>&1; then
		if [[ $(recall made-cluster) == yes && $(recall cluster) == kind ]]; then
			step "installing cert-manager $cert_manager_version from its release"
			kubectl apply -f "$cert_manager_manifest" >/dev/null
		else
			fail "cert-manager is missing in this cluster, and the operator needs it for all certificates. Install it, for example with
  kubectl apply -f $cert_manager_manifest
and run this again."
		fi
	fi
	wait_for "waiting for cert-manager" 180 cert_manager_answers || fail "cert-manager does not respond, see above"
}

# --- the operator ----------------------------------------------------------------------------------------------------

# operator_manifests prints the folder to install: config/default, or .demo/operator with the image that was chosen. The
# operator runs all servers from the same image.
operator_manifests() {
	if [[ $image == "$local_image" ]]; then
		echo config/default
		return
	fi
	mkdir -p "$state/operator"
	cat >"$state/operator/kustomization.yaml" <<-YAML
		# Written by hack/demo.sh.
		apiVersion: kustomize.config.k8s.io/v1beta1
		kind: Kustomization
		resources:
		- ../../config/default
		patches:
		- target: {kind: Deployment, name: atoll-controller-manager}
		  patch: |
		    - {op: replace, path: /spec/template/spec/containers/0/image, value: "$image"}
		    - {op: replace, path: /spec/template/spec/containers/0/env/0/value, value: "$image"}
	YAML
	echo "$state/operator"
}

# rolled_out NAMESPACE DEPLOYMENT prints its pods until all of them are ready.
rolled_out() {
	kubectl -n "$1" rollout status "deployment/$2" --watch=false | grep -q 'successfully rolled out' && return
	kubectl -n "$1" get pods -o 'custom-columns=POD:.metadata.name,PHASE:.status.phase,WAITING:.status.containerStatuses[*].state.waiting.reason' --no-headers
	return 1
}

# prepare_cluster makes a cluster with all that the operator needs.
prepare_cluster() {
	announce
	cluster_up
	cert_manager
	load_image
}

# install_operator installs the operator in a prepared cluster.
install_operator() {
	local running
	running=$(kubectl get pods --all-namespaces -l app.kubernetes.io/name=atoll -o name)
	kubectl get crd rootshards.operator.kcp.io >/dev/null 2>&1 || remember made-operator yes
	remember operator-manifests "$(operator_manifests)"
	step "installing the operator: kubectl apply -k $(recall operator-manifests)"
	kubectl apply -k "$(recall operator-manifests)" >"$state/apply.log" 2>&1 || fail "$(cat "$state/apply.log")"
	if [[ $(recall restart) == yes && -n $running ]]; then
		say "   the image has changed: restarting what runs it"
		kubectl -n atoll-system rollout restart deployment >/dev/null
		# Not etcd: its data is in the pod, and would be lost.
		kubectl -n "$namespace" rollout restart deployment >/dev/null 2>&1 || true
	fi
	rm -f "$state/restart"
	wait_for "waiting for the operator" 180 rolled_out atoll-system atoll-controller-manager || {
		kubectl -n atoll-system describe pods | tail -n 30 >&2
		kubectl -n atoll-system logs deployment/atoll-controller-manager --tail 30 >&2 || true
		fail "the operator does not start, see above"
	}
}
