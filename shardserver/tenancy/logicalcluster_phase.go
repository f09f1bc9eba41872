package tenancy

import (
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// nextPhase returns the next phase of a logical cluster.
func nextPhase(cluster *corev1alpha1.LogicalCluster) corev1alpha1.LogicalClusterPhaseType {
	phase, status := cluster.Status.Phase, cluster.Status
	switch {
	case cluster.DeletionTimestamp != nil && len(status.Terminators) > 0:
		return corev1alpha1.LogicalClusterPhaseTerminating
	case cluster.DeletionTimestamp != nil:
		return corev1alpha1.LogicalClusterPhaseDeleting
	case notStarted(phase):
		return corev1alpha1.LogicalClusterPhaseInitializing
	case phase == corev1alpha1.LogicalClusterPhaseInitializing && len(status.Initializers) == 0:
		return corev1alpha1.LogicalClusterPhaseReady
	case phase == corev1alpha1.LogicalClusterPhaseReady && markedInactive(cluster):
		return corev1alpha1.LogicalClusterPhaseInactive
	case phase == corev1alpha1.LogicalClusterPhaseInactive && !markedInactive(cluster):
		return corev1alpha1.LogicalClusterPhaseReady
	default:
		return phase
	}
}

// setClusterPhase sets the next phase and the condition WorkspaceInitialized.
func setClusterPhase(cluster *corev1alpha1.LogicalCluster) {
	cluster.Status.Phase = nextPhase(cluster)
	switch {
	case cluster.DeletionTimestamp != nil:
	case initializing(cluster):
		markInitializing(cluster, cluster.Status.Initializers)
	default:
		conditionsv1alpha1.MarkTrue(cluster, corev1alpha1.WorkspaceInitialized)
	}
}

func markedInactive(cluster *corev1alpha1.LogicalCluster) bool {
	return cluster.Annotations[corev1alpha1.InactiveAnnotationKey] == "true" || cluster.Annotations[corev1alpha1.LegacyInactiveAnnotationKey] == "true"
}
