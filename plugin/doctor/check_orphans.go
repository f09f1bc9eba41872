package doctor

import (
	"fmt"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// orphans finds logical clusters without their Workspace, and Workspaces without their logical cluster, as after a restore of one shard. What
// moves is at two places for a while, so it is no finding.
//
// A list of one shard is older than that of another, so what seems to be an orphan is read again, and only then a finding.
func orphans(facts *Facts, limits Limits) []Finding {
	clusters, workspaces := orphanCandidates(facts, limits)
	var found []Finding
	unconfirmed := 0
	for _, at := range clusters {
		switch cluster := facts.LogicalClusters[at]; cluster.Recheck {
		case RecheckConfirmed:
			found = append(found, Finding{
				Severity: SeverityWarning, Object: "logical cluster " + cluster.Cluster + " on shard " + cluster.Shard,
				Message:  "its Workspace " + cluster.OwnerCluster + "/" + cluster.OwnerName + " does not exist",
				NextStep: "Check its content: kubectl ws :" + cluster.Cluster + ". Nothing deletes it",
			})
		case RecheckChanged:
		default:
			unconfirmed++
		}
	}
	for _, at := range workspaces {
		switch workspace := facts.Workspaces[at]; workspace.Recheck {
		case RecheckConfirmed:
			found = append(found, Finding{
				Severity: SeverityError, Object: "workspace " + workspace.String(), Message: "no shard has its logical cluster " + workspace.LogicalCluster,
				NextStep: "Restore its shard from a newer backup, or delete the Workspace",
			})
		case RecheckChanged:
		default:
			unconfirmed++
		}
	}
	if unconfirmed > 0 {
		found = append(found, Finding{
			Severity: SeverityWarning, Object: "installation", Message: fmt.Sprintf("%d more logical clusters or Workspaces may be orphans: they were not read again", unconfirmed),
			NextStep: "Repair what is found, and repeat the command, with a longer --timeout if it ended",
		})
	}
	return found
}

// orphanCandidates returns the indices of logical clusters without a Workspace, and of Workspaces without a logical cluster.
func orphanCandidates(facts *Facts, limits Limits) (clusters, workspaces []int) {
	owners := make(map[string]bool, len(facts.Workspaces))
	for _, workspace := range facts.Workspaces {
		owners[workspace.UID] = true
	}
	existing := make(map[string]bool, len(facts.LogicalClusters))
	for _, cluster := range facts.LogicalClusters {
		existing[cluster.Cluster] = true
	}
	for i, cluster := range facts.LogicalClusters {
		if cluster.OwnerUID == "" || cluster.IsMoving || cluster.Deleting != nil || owners[cluster.OwnerUID] || !isLate(facts, cluster.Created, limits) {
			continue
		}
		clusters = append(clusters, i)
	}
	for i, workspace := range facts.Workspaces {
		isScheduled := workspace.LogicalCluster != "" && !workspace.IsMount && workspace.Phase != string(corev1alpha1.LogicalClusterPhaseScheduling)
		if !isScheduled || workspace.Deleting != nil || existing[workspace.LogicalCluster] || !isLate(facts, workspace.Created, limits) {
			continue
		}
		workspaces = append(workspaces, i)
	}
	return clusters, workspaces
}
