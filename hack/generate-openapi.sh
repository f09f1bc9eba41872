#!/usr/bin/env bash
# Generates the OpenAPI definitions of kcp's own kinds, and their model names, for shards. It also
# completes the CustomResourceDefinitions that hack/generate.sh writes for the same kinds, so run it after that one.
# Run it from anywhere; it is safe to run twice and prints what it does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0
module=$(go list -m)
output=shardserver/apis/openapi
packages=(admin/v1alpha1 conditions/v1alpha1 core/v1alpha1 tenancy/v1alpha1 topology/v1alpha1 cache/v1alpha1 migration/v1alpha1 apis/v1alpha1 apis/v1alpha2)
# The generator must fit the library that reads what it writes. It is run on its own requirements: the server does not
# need them.
generator=k8s.io/kube-openapi/cmd/openapi-gen@$(go list -m -f '{{.Version}}' k8s.io/kube-openapi)
violations=$(mktemp)
trap 'rm -f "$violations"' EXIT

echo "openapi: $output, api/*/zz_generated.model_name.go"
# The schemas are those of kcp, so that reports of the linter (names, missing list types) are ignored.
go run "$generator" \
	--go-header-file /dev/null \
	--output-dir "$output" \
	--output-pkg "$module/$output" \
	--output-file zz_generated.openapi.go \
	--output-model-name-file zz_generated.model_name.go \
	--report-filename "$violations" \
	"${packages[@]/#/$module/api/}"
# The generator refers by Go path to packages that it does not generate, but Kubernetes publishes its
# definitions under model names: "k8s.io/api/rbac/v1.PolicyRule" is "io.k8s.api.rbac.v1.PolicyRule".
sed -E -i \
	-e 's#"k8s\.io/([^"]*\.[A-Z][A-Za-z]*)"#"io.k8s.\1"#g' \
	-e ':dots' -e 's#("io\.k8s\.[^"/]*)/([^"]*")#\1.\2#' -e 't dots' \
	"$output/zz_generated.openapi.go"
gofmt -w "$output/zz_generated.openapi.go"

echo "definitions: rules for names in config/kcp/crd"
go run ./hack/crdnames config/kcp/crd

echo "schemas of root's exports: shardserver/bootstrap/rootapis/schemas"
go run ./hack/rootschemas config/kcp/crd shardserver/bootstrap/rootapis/schemas
