package apiindex

import (
	"strings"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// VirtualWorkspaceURL returns the URL of the virtual workspace of an export on a shard, which shows the objects of all
// consumers on that shard.
func VirtualWorkspaceURL(shard *corev1alpha1.Shard, export bindings.ExportKey) string {
	return strings.TrimSuffix(shard.Spec.VirtualWorkspaceURL, "/") + VirtualWorkspacePath(export)
}

// VirtualWorkspacePath returns the path of VirtualWorkspaceURL, which is the same on every shard.
func VirtualWorkspacePath(export bindings.ExportKey) string {
	return "/services/apiexport/" + export.Cluster.String() + "/" + export.Name
}
