# shellcheck shell=bash
# The demo of the sync agent: cert-manager's certificates as a service of the demo's cluster. The manifests are those of
# config/samples/sync-agent. Sourced by hack/demo.sh, whose functions and variables it uses.

samples=config/samples/sync-agent
agent_namespace=sync-agent
provider=root:certificates # the workspace that the samples name
consumer=root:shop

# in_workspace PATH ARGS... runs kubectl in a workspace.
in_workspace() { admin --server "https://$(recall address)/clusters/$1" "${@:2}"; }

# quietly runs a command and shows its output only if it fails.
quietly() {
	local output
	output=$("$@" 2>&1) && return
	printf '%s\n' "$output" | tail -n 5
	return 1
}

# create_workspace NAME creates a workspace below root and prints its state until it is ready.
create_workspace() {
	local phase
	phase=$(admin get workspace "$1" -o 'jsonpath={.status.phase}' 2>/dev/null) || {
		quietly admin create -f - <<-YAML || return
			apiVersion: tenancy.kcp.io/v1alpha1
			kind: Workspace
			metadata: {name: $1}
			spec: {type: {name: universal, path: root}}
		YAML
	}
	[[ $phase == Ready ]] || { echo "workspace $1: ${phase:-just created}"; return 1; }
}

# has_condition PATH|- KIND/NAME TYPE [ARGS] succeeds if the condition is True, and prints it otherwise. "-" is the cluster.
has_condition() {
	local run=(kubectl) now
	[[ $1 == - ]] || run=(in_workspace "$1")
	now=$("${run[@]}" get "$2" "${@:4}" -o "go-template={{range .status.conditions}}{{if eq .type \"$3\"}}{{.status}} {{or .reason \"\"}} {{or .message \"\"}}{{end}}{{end}}" 2>&1) || { tail -n 1 <<<"$now"; return 1; }
	[[ $now == True* ]] || { echo "$2: $3 ${now:-is not set}"; return 1; }
}

# kubeconfig_secret KUBECONFIG NAMESPACE copies a kubeconfig that the operator wrote into another namespace, for pods there.
kubeconfig_secret() {
	has_condition - "kubeconfig/$1" Ready -n "$namespace" || return
	kubectl -n "$namespace" get secret "$1" -o 'jsonpath={.data.kubeconfig}' | base64 --decode >"$state/$1.kubeconfig"
	# Pods do not reach a port-forward of this host.
	[[ $(recall route) != forward ]] ||
		sed -i "s#https://$(recall address)/#https://frontproxy-front-proxy.$namespace.svc.cluster.local:${DEMO_PORT:-$(port_of_proxy)}/#" "$state/$1.kubeconfig"
	chmod 600 "$state/$1.kubeconfig"
	kubectl -n "$2" create secret generic kcp-kubeconfig --from-file="kubeconfig=$state/$1.kubeconfig" --dry-run=client -o yaml |
		quietly kubectl apply -f -
}

port_of_proxy() { kubectl -n "$namespace" get service frontproxy-front-proxy -o 'jsonpath={.spec.ports[0].port}'; }

# with_image SAMPLES DEPLOYMENT prints the folder to install: that of the samples, or one in .demo with the image that was chosen.
with_image() {
	if [[ $image == "$local_image" ]]; then
		echo "$1"
		return
	fi
	mkdir -p "$state/$2"
	cat >"$state/$2/kustomization.yaml" <<-YAML
		# Written by hack/demo.sh.
		apiVersion: kustomize.config.k8s.io/v1beta1
		kind: Kustomization
		resources:
		- ../../$1
		patches:
		- target: {kind: Deployment, name: $2}
		  patch: |
		    - {op: replace, path: /spec/template/spec/containers/0/image, value: "$image"}
	YAML
	echo "$state/$2"
}

agent_manifests() { with_image "$samples/agent" sync-agent; }

secret_arrived() {
	local names
	names=$(in_workspace "$consumer" get secret shop-tls -n default -o 'go-template={{range $key, $value := .data}}{{$key}} {{end}}' 2>&1) || { tail -n 1 <<<"$names"; return 1; }
	[[ $names == *tls.crt* ]] || { echo "Secret shop-tls has only $names"; return 1; }
}

describe_agent() {
	kubectl get publishedresources >&2 || true
	kubectl -n "$agent_namespace" get pods >&2 || true
	kubectl -n "$agent_namespace" logs --prefix --tail 20 -l app.kubernetes.io/name=sync-agent >&2 || true
	in_workspace "$consumer" get events --all-namespaces >&2 || true
}

service() {
	local before
	before=$(recall image)
	if [[ -s $state/admin.kubeconfig ]] && find_kubectl && answers >/dev/null; then
		load_image
	else
		install
	fi
	service_failed() { describe_agent; fail "$1, see above"; }
	claim service "$agent_namespace"

	wait_for "creating the workspace of the provider, $provider" 60 create_workspace "${provider##*:}" || fail "see above"
	wait_for "an APIExport in it: kubectl apply -f $samples/provider.yaml" 60 quietly in_workspace "$provider" apply -f "$samples/provider.yaml" || fail "see above"

	step "the agent, and what it publishes: kubectl apply -k $(agent_manifests)"
	kubectl apply -k "$(agent_manifests)" >"$state/apply.log" 2>&1 || fail "$(cat "$state/apply.log")"
	quietly kubectl apply -f "$samples/kubeconfig.yaml" || fail "see above"
	wait_for "waiting for the kubeconfig of the agent" 120 kubeconfig_secret sync-agent-certificates "$agent_namespace" || fail "the operator does not write it, see above"
	if [[ -n $before && $(recall image) != "$before" ]]; then
		say "   the image has changed: restarting the agent"
		kubectl -n "$agent_namespace" rollout restart deployment >/dev/null
	fi
	wait_for "waiting for the agent" 120 rolled_out "$agent_namespace" sync-agent || service_failed "the agent does not start"
	wait_for "waiting for the definition of PublishedResources" 30 has_condition - crd/publishedresources.syncagent.kcp.io Established || fail "see above"
	step "publishing certificates, signed by an authority of the cluster: kubectl apply -f $samples/issuer.yaml -f $samples/publishedresource.yaml"
	quietly kubectl apply -f "$samples/issuer.yaml" -f "$samples/publishedresource.yaml" || fail "see above"
	wait_for "waiting for the PublishedResource" 60 has_condition - publishedresource/certificates Exported || service_failed "the agent does not publish it"

	wait_for "creating the workspace of a consumer, $consumer" 60 create_workspace "${consumer##*:}" || fail "see above"
	wait_for "binding the export there: kubectl apply -f $samples/binding.yaml" 60 quietly in_workspace "$consumer" apply -f "$samples/binding.yaml" || fail "see above"
	wait_for "waiting for the binding" 60 has_condition "$consumer" apibinding/certificates InitialBindingCompleted || service_failed "the export is not bound"
	wait_for "requesting a Certificate there: kubectl apply -f $samples/certificate.yaml" 60 quietly in_workspace "$consumer" apply -f "$samples/certificate.yaml" || fail "see above"
	wait_for "waiting until cert-manager has issued it" 120 has_condition "$consumer" certificates.certificates.example.com/shop Ready -n default || service_failed "the certificate does not get Ready"
	wait_for "waiting for its Secret in the workspace" 60 secret_arrived || service_failed "the Secret does not arrive"
	print_service_commands
}

print_service_commands() {
	cat <<-TEXT

		cert-manager runs in the cluster, and the workspace $consumer has a Certificate and its Secret. As a consumer:

		  export KUBECONFIG=$state/admin.kubeconfig PATH=$root/bin:\$PATH
		  kubectl ws :$consumer
		  kubectl get certificates,secrets                    # what the agent keeps in step with the cluster
		  kubectl get events                                  # what it did
		  kubectl delete certificate shop                     # its copy and the Secret are removed, too

		As the owner of the service, in the cluster:

		  kubectl --kubeconfig $state/kubeconfig get publishedresources
		  kubectl --kubeconfig $state/kubeconfig get certificates --all-namespaces -L syncagent.kcp.io/remote-object-cluster
		  kubectl --kubeconfig $state/kubeconfig -n $agent_namespace logs -l app.kubernetes.io/name=sync-agent

		How to publish APIs of your own: docs/publishing.md. To remove this: make demo-service-down
	TEXT
}

# workspace_gone NAME deletes a workspace and succeeds when it is gone.
workspace_gone() {
	quietly admin delete workspace "$1" --wait=false --ignore-not-found || return
	[[ -z $(admin get workspace "$1" --ignore-not-found -o name) ]] || { echo "workspace $1 is being deleted"; return 1; }
}

# service_down removes what service made. Objects in the workspace are deleted first: the agent removes their copies.
service_down() {
	find_kubectl
	if [[ -s $state/admin.kubeconfig ]] && answers >/dev/null; then
		if [[ -n $(admin get workspace "${consumer##*:}" --ignore-not-found -o name) ]]; then
			step "deleting the certificates in $consumer"
			in_workspace "$consumer" --request-timeout 60s delete certificates.certificates.example.com --all --all-namespaces --timeout 60s 2>&1 | sed 's/^/   /' || true
		fi
		wait_for "deleting the workspace $consumer" 120 workspace_gone "${consumer##*:}" || fail "see above"
		wait_for "deleting the workspace $provider" 120 workspace_gone "${provider##*:}" || fail "see above"
	fi
	step "deleting the agent and the authority"
	kubectl delete -f "$samples/publishedresource.yaml" -f "$samples/issuer.yaml" -f "$samples/kubeconfig.yaml" --ignore-not-found >/dev/null 2>&1 || true
	kubectl -n cert-manager delete secret consumers-ca --ignore-not-found >/dev/null
	kubectl delete -k "$(agent_manifests)" --wait --timeout 120s --ignore-not-found | sed 's/^/   /'
	# cert-manager keeps the Secrets of deleted Certificates, so the namespace of the copies is not empty.
	kubectl delete namespaces -l syncagent.kcp.io/agent-name=certificates-syncagent | sed 's/^/   /'
	rm -f "$state/service" "$state/sync-agent-certificates.kubeconfig"
	step "the service is removed"
}
