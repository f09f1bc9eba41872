package doctor

import corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"

// orphans finds logical clusters without their Workspace, and Workspaces without their logical cluster, as after a restore of one shard. What
// moves is at two places for a while, so it is no finding.
func orphans(facts *Facts, limits Limits) []Finding {
	owners := make(map[string]bool, len(facts.Workspaces))
	for _, workspace := range facts.Workspaces {
		owners[workspace.UID] = true
	}
	existing := make(map[string]bool, len(facts.LogicalClusters))
	for _, cluster := range facts.LogicalClusters {
		existing[cluster.Cluster] = true
	}
	var found []Finding
	for _, cluster := range facts.LogicalClusters {
		if cluster.OwnerUID == "" || cluster.IsMoving || cluster.Deleting != nil || owners[cluster.OwnerUID] || !isLate(facts, cluster.Created, limits) {
			continue
		}
		found = append(found, Finding{
			Severity: SeverityWarning, Object: "logical cluster " + cluster.Cluster + " on shard " + cluster.Shard,
			Message:  "its Workspace " + cluster.OwnerCluster + "/" + cluster.OwnerName + " does not exist",
			NextStep: "Look at its content by its name: kubectl ws :" + cluster.Cluster + ". It is not deleted by itself",
		})
	}
	for _, workspace := range facts.Workspaces {
		isScheduled := workspace.LogicalCluster != "" && !workspace.IsMount && workspace.Phase != string(corev1alpha1.LogicalClusterPhaseScheduling)
		if !isScheduled || workspace.Deleting != nil || existing[workspace.LogicalCluster] || !isLate(facts, workspace.Created, limits) {
			continue
		}
		found = append(found, Finding{
			Severity: SeverityError, Object: "workspace " + workspace.String(), Message: "no shard has its logical cluster " + workspace.LogicalCluster,
			NextStep: "Restore its shard from a newer backup, or delete the Workspace",
		})
	}
	return found
}
