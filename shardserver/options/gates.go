package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Feature gates. Those of kcp are off unless switched on.
const (
	// GateWorkspaceMounts lets a workspace stand for a server elsewhere (Workspace.spec.mount).
	GateWorkspaceMounts = "WorkspaceMounts"
	// GateWorkspaceAuthentication lets a workspace type bring token issuers of its own.
	GateWorkspaceAuthentication = "WorkspaceAuthentication"
	// GateCacheAPIs serves cache.kcp.io, by which objects of a workspace are offered for reading on all shards.
	GateCacheAPIs = "CacheAPIs"
	// GateDeprecatedURLs lists in the status of APIExports the addresses that APIExportEndpointSlices have.
	GateDeprecatedURLs = "EnableDeprecatedAPIExportVirtualWorkspacesUrls"
	// GateCBOR is the gate of Kubernetes behind which objects are read and written as CBOR. Upstream has it off; here it
	// is on. What is stored is not changed by it.
	GateCBOR = string(features.CBORServingAndStorage)
)

// gates are the feature gates that are known and whether this version has what is behind them.
var gates = map[string]bool{
	GateCBOR:                    true,
	GateCacheAPIs:               true,
	GateWorkspaceAuthentication: true,
	GateWorkspaceMounts:         true,
	GateDeprecatedURLs:          true,
	"LogicalClusterMigration":   false,
}

func knownGates() []string { return slices.Sorted(maps.Keys(gates)) }

// ParseFeatureGates reads Name=true|false pairs, the last of a name counting, and returns the gates that are on. A
// gate whose feature this version does not have may be switched off, and nothing else.
func ParseFeatureGates(values []string) (map[string]bool, error) {
	on := map[string]bool{GateCBOR: true}
	for _, value := range values {
		if value == "" {
			continue
		}
		name, state, ok := strings.Cut(value, "=")
		available, known := gates[name]
		switch {
		case !ok || (state != "true" && state != "false"):
			return nil, fmt.Errorf("--feature-gates: got %q, want Name=true or Name=false", value)
		case !known:
			return nil, fmt.Errorf("--feature-gates: unknown gate %q, want one of %v", name, knownGates())
		case state == "true" && !available:
			return nil, fmt.Errorf("--feature-gates: %s cannot be switched on: this version does not have the feature", name)
		}
		on[name] = state == "true"
	}
	return on, nil
}

// applyUpstream hands those gates on that Kubernetes reads. They are of the whole process.
func applyUpstream(on map[string]bool) error {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{GateCBOR: on[GateCBOR]}); err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	return nil
}

// FeatureEnabled tells whether a feature gate is on. A name that is no gate is off.
func (c *completed) FeatureEnabled(name string) bool { return c.features[name] }
