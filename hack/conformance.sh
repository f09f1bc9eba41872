#!/usr/bin/env bash
# Conformance of workspaces: Kubernetes' end-to-end specs, and common clients, through the front proxy of a shard that the
# script starts. Arguments go to the run of the specs:
#
#   hack/conformance.sh -only 'Watchers|Discovery'   some specs
#   hack/conformance.sh -workspaces 8                more at once than the default
#   hack/conformance.sh -output /tmp/out             keep the whole output and ginkgo's report there
#
# test/conformance/specs.yaml lists the specs that cannot run, with the reasons.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The same flags as in the Makefile, so that all share one build cache.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"

printf 'clients: controller-runtime, Helm and kubectl\n'
${TIMED:-} go -C test/clients test -vet=off -count 1 -timeout 10m ./...

printf '\nspecs of Kubernetes in workspaces\n'
${TIMED:-} go -C test/conformance test -vet=off -count 1 -timeout 30m -v -run TestConformance . -args "$@"
