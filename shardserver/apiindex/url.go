package apiindex

import (
	"strings"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// VirtualWorkspaceURL returns where the provider of an export finds what consumers on a shard made.
func VirtualWorkspaceURL(shard *corev1alpha1.Shard, export bindings.ExportKey) string {
	return strings.TrimSuffix(shard.Spec.VirtualWorkspaceURL, "/") + VirtualWorkspacePath(export)
}

// VirtualWorkspacePath is VirtualWorkspaceURL below the address of the virtual workspaces of any shard.
func VirtualWorkspacePath(export bindings.ExportKey) string {
	return "/services/apiexport/" + export.Cluster.String() + "/" + export.Name
}
