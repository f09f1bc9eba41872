#!/usr/bin/env bash
# Generates what is derived from Go sources: import rules, deepcopy methods, CustomResourceDefinitions and the operator's role.
# Run it from anywhere; it is safe to run twice and prints what it does. `make verify` checks that it changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0
controller_gen=$(go -C hack/tools tool -n controller-gen)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Descriptions are cut at the last sentence that fits. Kubernetes' own texts (volumes, affinity) make up nearly all of a
# definition; cut like this, each stays below the 262144 bytes that a plain `kubectl apply` can store in its annotation.
max_description=290

# Kinds that the operator acts on. A kind with a Go type that is not listed here is not served: objects that no controller
# reconciles would be accepted.
operator_kinds=(rootshards shards frontproxies cacheservers virtualworkspaces kubeconfigs backupstores backups backupschedules restores restoredrills)

echo "import rules: .golangci.yml"
go run ./hack/layers .

echo "deepcopy: api/..."
(cd api && "$controller_gen" object paths=./...)

echo "definitions: config/crd/bases"
(cd api && "$controller_gen" crd:maxDescLen="$max_description" paths=./operator/... output:crd:dir="$scratch/operator")
mkdir -p config/crd/bases
rm -f config/crd/bases/*.yaml
for kind in "${operator_kinds[@]}"; do
	cp "$scratch/operator/operator.kcp.io_$kind.yaml" config/crd/bases/
done

# Kinds that a shard has compiled in. Their definitions are not installed: they document the schemas and are compared with
# those of kcp.
shard_groups=()
for group in admin core tenancy topology cache migration apis; do
	if [[ -d api/$group ]]; then shard_groups+=("paths=./$group/..."); fi
done
if ((${#shard_groups[@]})); then
	echo "definitions: config/kcp/crd"
	mkdir -p config/kcp/crd
	(cd api && "$controller_gen" crd "${shard_groups[@]}" output:crd:dir="$PWD/../config/kcp/crd")
fi

# What the sync agent reads on a service cluster.
echo "definitions: config/sync-agent/crd"
mkdir -p config/sync-agent/crd
(cd api && "$controller_gen" crd paths=./syncagent/... output:crd:dir="$PWD/../config/sync-agent/crd")

# The older dialect: PublishedResources for service clusters, Services for workspaces of organisations.
echo "definitions: config/sync-agent/kdp"
mkdir -p config/sync-agent/kdp
(cd api && "$controller_gen" crd paths=./kdp/... output:crd:dir="$PWD/../config/sync-agent/kdp")

# What the infrastructure provider puts into its workspace, under the API group that it is configured with.
echo "definitions: infrastructure/catalogue/crd"
mkdir -p infrastructure/catalogue/crd
(cd api && "$controller_gen" crd paths=./infrastructure/... output:crd:dir="$scratch/infrastructure")
for resource in catalogues templates; do
	cp "$scratch"/infrastructure/*_"$resource".yaml "infrastructure/catalogue/crd/$resource.yaml"
done

if compgen -G 'controllers/*' >/dev/null; then
	echo "role: config/rbac/role.yaml"
	mkdir -p config/rbac
	"$controller_gen" rbac:roleName=manager-role paths=./controllers/... output:rbac:dir=config/rbac
fi
