#!/usr/bin/env bash
# Generates what is derived from generated files: charts, dashboards and the reference. It runs last; `make verify` checks that it
# changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0

# A chart can only read files in its own folder.
echo "charts: definitions and roles"
rm -rf charts/atoll-operator/files
mkdir -p charts/atoll-operator/files/crds
cp config/crd/bases/*.yaml charts/atoll-operator/files/crds/
cp config/rbac/{role,leader_election_role,user_roles}.yaml config/prometheus/alerts.yaml charts/atoll-operator/files/
cp config/restore-drill/role.yaml charts/atoll-operator/files/restore_drill_role.yaml
rm -rf charts/atoll-sync-agent/files
mkdir -p charts/atoll-sync-agent/files/crds
cp config/sync-agent/crd/syncagent.kcp.io_*.yaml charts/atoll-sync-agent/files/crds/
cp config/sync-agent/{role,namespace_role}.yaml charts/atoll-sync-agent/files/
go run ./hack/chartschema config/crd/bases charts/atoll-installation/values.schema.json

echo "dashboards: config/prometheus/dashboards"
go run ./hack/dashboards config/prometheus/dashboards

echo "reference: docs/reference"
go run ./hack/reference docs/reference

# Feature gates and flags of Kubernetes are shared by all commands of a process, so that each program's page needs a process of its own: its
# test. Go keeps the results of tests with the files that they read, so that nothing is linked where no page can have changed.
#
#   SKIP_FLAG_PAGES  anything: do not; .ci/run runs these tests among all others
if [[ -z ${SKIP_FLAG_PAGES:-} ]]; then
	echo "reference: docs/reference/flags"
	pages=(go test -vet=off -run '^TestReference$' ./cmd/... ./plugin)
	"${pages[@]}" &>/dev/null || "${pages[@]}" -update
fi
