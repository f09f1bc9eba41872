package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Feature gates. Those of kcp are disabled by default.
const (
	// GateWorkspaceMounts enables workspaces that are mounts of other servers (Workspace.spec.mount).
	GateWorkspaceMounts = "WorkspaceMounts"
	// GateWorkspaceAuthentication enables token issuers of workspace types.
	GateWorkspaceAuthentication = "WorkspaceAuthentication"
	// GateCacheAPIs serves cache.kcp.io, which publishes objects of a workspace for reading on all shards.
	GateCacheAPIs = "CacheAPIs"
	// GateLogicalClusterMigration moves logical clusters to other shards (LogicalClusterMigration).
	GateLogicalClusterMigration = "LogicalClusterMigration"
	// GateDeprecatedURLs adds the URLs of APIExportEndpointSlices to the status of APIExports.
	GateDeprecatedURLs = "EnableDeprecatedAPIExportVirtualWorkspacesUrls"
	// gateStorageVersionAPI is a gate of Kubernetes that kcp exports. Command lines of kcp may switch it off.
	gateStorageVersionAPI = string(features.StorageVersionAPI)
	// GateCBOR is the gate of Kubernetes that enables CBOR as a media type. It is disabled by default upstream and
	// enabled here. It does not change the storage encoding.
	GateCBOR = string(features.CBORServingAndStorage)
)

// gates are the feature gates, and whether this version implements them.
var gates = map[string]bool{
	GateCBOR:                    true,
	GateCacheAPIs:               true,
	GateWorkspaceAuthentication: true,
	GateWorkspaceMounts:         true,
	GateDeprecatedURLs:          true,
	GateLogicalClusterMigration: true,
	gateStorageVersionAPI:       false,
}

func knownGates() []string { return slices.Sorted(maps.Keys(gates)) }

// ParseFeatureGates parses Name=true|false pairs, the last of a name taking precedence, and returns the enabled gates.
// A gate that this version does not implement can only be disabled.
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

// setUpstreamGates sets the gates that Kubernetes libraries read. They apply to the whole process.
func setUpstreamGates(on map[string]bool) error {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{GateCBOR: on[GateCBOR]}); err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	return nil
}

// FeatureEnabled reports whether a feature gate is enabled. An unknown gate is disabled.
func (c *completed) FeatureEnabled(name string) bool { return c.features[name] }
