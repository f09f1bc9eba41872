# shellcheck shell=bash
# The demo of the infrastructure provider: a catalogue of Templates, and two tenants with an instance each. The manifests are those of
# config/samples/infrastructure. Sourced by hack/demo.sh, whose functions and variables it uses.

infrastructure_samples=config/samples/infrastructure
infrastructure_namespace=infrastructure-provider
infrastructure_workspace=root:infrastructure # the workspace that the samples name
# Tenants, and the sample that each of them orders.
declare -A tenants=([blue]=redis [green]=postgres)

# as_tenant NAME ARGS... runs kubectl with the token of a tenant in its workspace.
as_tenant() { command "$kubectl" --kubeconfig "$state/$1.kubeconfig" --request-timeout 10s "${@:2}"; }

provider_manifests() { with_image "$infrastructure_samples/provider" infrastructure-provider; }

# provider_cluster remembers the logical cluster of the provider, whose name is in the label of the namespaces of its tenants.
provider_cluster() {
	local cluster
	cluster=$(in_workspace "$infrastructure_workspace" get logicalclusters.core.kcp.io cluster -o 'jsonpath={.metadata.annotations.kcp\.io/cluster}' 2>&1) || { tail -n 1 <<<"$cluster"; return 1; }
	[[ -n $cluster ]] || { echo "its LogicalCluster does not say so"; return 1; }
	remember provider-cluster "$cluster"
}

# tenant_namespaces prints the namespaces of the tenants of this provider. Other providers may use the cluster, too.
tenant_namespaces() {
	local cluster
	cluster=$(recall provider-cluster)
	[[ -z $cluster ]] || kubectl get namespaces -l app.kubernetes.io/managed-by=infrastructure-provider \
		-o 'jsonpath={range .items[*]}{.metadata.name} {.metadata.labels.infrastructure\.kedge\.faros\.sh/provider}{"\n"}{end}' | sed -n "s/ $cluster\..*//p"
}

# templates_ready prints the Templates that are not ready, and succeeds if there are some and all are.
templates_ready() {
	local lines
	lines=$(in_workspace "$infrastructure_workspace" get templates -o 'go-template={{range .items}}{{$name := .metadata.name}}{{range .status.conditions}}{{if eq .type "Ready"}}{{$name}} {{.status}} {{.message}}{{"\n"}}{{end}}{{end}}{{end}}' 2>&1) || { tail -n 1 <<<"$lines"; return 1; }
	[[ -n $lines ]] || { echo "there are none yet"; return 1; }
	grep -v '^[^ ]* True ' <<<"$lines" || return 0
	return 1
}

# tenant_kubeconfig NAME writes a kubeconfig with a token of an administrator of the tenant's workspace.
tenant_kubeconfig() {
	local cluster=$1 token
	quietly in_workspace "root:$cluster" apply -f - <<-YAML || return
		apiVersion: v1
		kind: ServiceAccount
		metadata: {name: admin, namespace: default}
		---
		apiVersion: rbac.authorization.k8s.io/v1
		kind: ClusterRoleBinding
		metadata: {name: admin}
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
		subjects: [{kind: ServiceAccount, name: admin, namespace: default}]
	YAML
	token=$(in_workspace "root:$cluster" -n default create token admin --duration 24h 2>&1) || { tail -n 1 <<<"$token"; return 1; }
	(
		umask 077
		cat >"$state/$cluster.kubeconfig" <<-YAML
			apiVersion: v1
			kind: Config
			current-context: tenant
			contexts: [{name: tenant, context: {cluster: tenant, user: tenant}}]
			clusters:
			- name: tenant
			  cluster:
			    server: https://$(recall address)/clusters/root:$cluster
			    certificate-authority-data: $(command "$kubectl" --kubeconfig "$state/admin.kubeconfig" config view --raw --minify --flatten -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}')
			users: [{name: tenant, user: {token: $token}}]
		YAML
	)
}

describe_provider() {
	in_workspace "$infrastructure_workspace" get templates >&2 || true
	kubectl -n "$infrastructure_namespace" get pods >&2 || true
	kubectl -n "$infrastructure_namespace" logs --prefix --tail 20 -l app.kubernetes.io/name=infrastructure-provider >&2 || true
	kubectl get statefulsets,deployments --all-namespaces -l app.kubernetes.io/managed-by=infrastructure-provider >&2 || true
}

infrastructure() {
	local before tenant kind
	before=$(recall image)
	if [[ -s $state/admin.kubeconfig ]] && find_kubectl && answers >/dev/null; then
		load_image
	else
		install
	fi
	infrastructure_failed() { describe_provider; fail "$1, see above"; }
	claim infrastructure "$infrastructure_namespace"
	load_server_images

	wait_for "creating the workspace of the provider, $infrastructure_workspace" 60 create_workspace "${infrastructure_workspace##*:}" || fail "see above"
	wait_for "asking which logical cluster that is" 60 provider_cluster || fail "see above"
	step "the provider: kubectl apply -k $(provider_manifests)"
	kubectl apply -k "$(provider_manifests)" >"$state/apply.log" 2>&1 || fail "$(cat "$state/apply.log")"
	quietly kubectl apply -f "$infrastructure_samples/kubeconfig.yaml" || fail "see above"
	wait_for "waiting for the kubeconfig of the provider" 120 kubeconfig_secret infrastructure-provider "$infrastructure_namespace" || fail "the operator does not write it, see above"
	if [[ -n $before && $(recall image) != "$before" ]]; then
		say "   the image has changed: restarting the provider"
		kubectl -n "$infrastructure_namespace" rollout restart deployment >/dev/null
	fi
	wait_for "waiting for the provider" 120 rolled_out "$infrastructure_namespace" infrastructure-provider || infrastructure_failed "the provider does not start"
	wait_for "waiting for its Templates" 60 templates_ready || infrastructure_failed "not all Templates are ready"

	for tenant in "${!tenants[@]}"; do
		kind=${tenants[$tenant]}
		wait_for "creating the workspace of a tenant, root:$tenant" 60 create_workspace "$tenant" || fail "see above"
		wait_for "a user of its own in it, with a token" 30 tenant_kubeconfig "$tenant" || fail "see above"
		wait_for "as that user, binding the catalogue: kubectl apply -f $infrastructure_samples/binding.yaml" 60 quietly as_tenant "$tenant" apply -f "$infrastructure_samples/binding.yaml" || fail "see above"
		wait_for "and ordering: kubectl apply -f $infrastructure_samples/$kind.yaml" 60 quietly as_tenant "$tenant" apply -f "$infrastructure_samples/$kind.yaml" || infrastructure_failed "the kind is not served"
		wait_for "waiting until it is ready" 180 instance_ready "$tenant" -f "$infrastructure_samples/$kind.yaml" || infrastructure_failed "the instance does not get Ready"
	done
	print_infrastructure_commands
}

instance_ready() {
	local now
	now=$(as_tenant "$1" get "${@:2}" -o 'jsonpath={.status.phase} {.status.endpoint} {.status.message}' 2>&1) || { tail -n 1 <<<"$now"; return 1; }
	[[ $now == Ready* ]] || { echo "${now:-no status yet}"; return 1; }
}

print_infrastructure_commands() {
	cat <<-TEXT

		The catalogue has $(in_workspace "$infrastructure_workspace" get templates -o name | wc -l) Templates, and two tenants have an instance each. As the tenant blue:

		  export KUBECONFIG=$state/blue.kubeconfig PATH=$root/bin:\$PATH
		  kubectl get templates                               # what can be ordered
		  kubectl get redis,postgres,applications             # what was
		  kubectl explain redis.spec
		  kubectl apply -f $infrastructure_samples/application.yaml
		  kubectl patch redis sessions --type merge -p '{"spec":{"size":"medium"}}'
		  kubectl delete redis sessions                       # everything that it is made of is removed, too

		In a browser, with the token in that file: $(web_address)/ui/ (the certificate is self-signed). For AI clients: $(web_address)/mcp
		The other tenant is .demo/green.kubeconfig. As the operator of the platform:

		  kubectl --kubeconfig $state/admin.kubeconfig --server https://$(recall address)/clusters/$infrastructure_workspace get templates
		  kubectl --kubeconfig $state/kubeconfig get statefulsets,deployments,secrets --all-namespaces -l app.kubernetes.io/managed-by=infrastructure-provider
		  kubectl --kubeconfig $state/kubeconfig -n $infrastructure_namespace logs -l app.kubernetes.io/name=infrastructure-provider

		For tenants: docs/catalogue.md. For operators: docs/infrastructure.md. To remove this: make demo-infrastructure-down
	TEXT
	[[ $(recall route) != forward ]] ||
		say "Before that: kubectl --kubeconfig $state/kubeconfig -n $infrastructure_namespace port-forward service/infrastructure-provider 8443:443"
}

# web_address prints where this host reaches the web server of the provider.
web_address() {
	if [[ $(recall route) == forward ]]; then
		echo https://localhost:8443
	else
		echo "https://$(kubectl -n "$infrastructure_namespace" get service infrastructure-provider -o 'jsonpath={.spec.clusterIP}')"
	fi
}

# instances_gone NAME deletes the instances of a tenant and succeeds when all are gone.
instances_gone() {
	local kinds left
	kinds=$(in_workspace "root:$1" api-resources --api-group infrastructure.kedge.faros.sh --verbs delete -o name 2>/dev/null | grep -v '^templates\.' | paste -sd,)
	[[ -n $kinds ]] || return 0
	quietly in_workspace "root:$1" delete "$kinds" --all --wait=false || return
	left=$(in_workspace "root:$1" get "$kinds" -o name 2>&1) || { tail -n 1 <<<"$left"; return 1; }
	[[ -z $left ]] || { echo "$left"; return 1; }
}

# infrastructure_down removes what infrastructure made. Instances are deleted first: the provider removes what they are made of.
infrastructure_down() {
	local tenant
	find_kubectl
	if [[ -s $state/admin.kubeconfig ]] && answers >/dev/null; then
		for tenant in "${!tenants[@]}"; do
			[[ -n $(admin get workspace "$tenant" --ignore-not-found -o name) ]] || continue
			wait_for "deleting the instances in root:$tenant" 120 instances_gone "$tenant" || say "   some are left; their namespace is deleted below"
			wait_for "deleting the workspace root:$tenant" 120 workspace_gone "$tenant" || fail "see above"
		done
		wait_for "deleting the workspace $infrastructure_workspace" 120 workspace_gone "${infrastructure_workspace##*:}" || fail "see above"
	fi
	step "deleting the provider and the namespaces of tenants"
	kubectl delete -f "$infrastructure_samples/kubeconfig.yaml" --ignore-not-found >/dev/null 2>&1 || true
	kubectl delete -k "$(provider_manifests)" --wait --timeout 120s --ignore-not-found | sed 's/^/   /'
	tenant_namespaces | xargs -r "$kubectl" --kubeconfig "$state/kubeconfig" delete namespaces | sed 's/^/   /'
	rm -f "$state"/infrastructure "$state/provider-cluster" "$state/infrastructure-provider.kubeconfig"
	for tenant in "${!tenants[@]}"; do rm -f "$state/$tenant.kubeconfig"; done
	step "the infrastructure provider is removed"
}
