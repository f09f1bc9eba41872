package core

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// maxLabelKey is the length of a hashed label key, including its prefix.
const maxLabelKey = 63

// InitializerLabel returns the label of a LogicalCluster while the initializer remains. The key is hashed because the
// initializer's name is too long for a label and contains colons.
func InitializerLabel(initializer corev1alpha1.LogicalClusterInitializer) (key, value string) {
	return hashedLabel(corev1alpha1.InitializerLabelKeyPrefix, string(initializer))
}

// TerminatorLabel is InitializerLabel for terminators.
func TerminatorLabel(terminator corev1alpha1.LogicalClusterTerminator) (key, value string) {
	return hashedLabel(corev1alpha1.TerminatorLabelKeyPrefix, string(terminator))
}

func hashedLabel(prefix, name string) (key, value string) {
	sum := sha256.Sum224([]byte(name))
	digest := hex.EncodeToString(sum[:])
	return prefix + digest[:maxLabelKey-len(prefix)], digest
}

// StatusLabels returns labels updated to the status: the phase, and one for each remaining initializer and terminator.
func StatusLabels(labels map[string]string, status corev1alpha1.LogicalClusterStatus) map[string]string {
	updated := make(map[string]string, len(labels)+1)
	for key, value := range labels {
		if !strings.HasPrefix(key, corev1alpha1.InitializerLabelKeyPrefix) && !strings.HasPrefix(key, corev1alpha1.TerminatorLabelKeyPrefix) {
			updated[key] = value
		}
	}
	updated[corev1alpha1.PhaseLabelKey] = string(status.Phase)
	for _, initializer := range status.Initializers {
		key, value := InitializerLabel(initializer)
		updated[key] = value
	}
	for _, terminator := range status.Terminators {
		key, value := TerminatorLabel(terminator)
		updated[key] = value
	}
	return updated
}

// initializeStatus starts the initialization of a logical cluster that is created with its shard set. For others the first update
// of the phase does.
func initializeStatus(cluster *corev1alpha1.LogicalCluster) {
	if cluster.Annotations[corev1alpha1.ShardAnnotationKey] == "" {
		return
	}
	cluster.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
	cluster.Status.Initializers = slices.Clone(cluster.Spec.Initializers)
	cluster.Status.Terminators = slices.Clone(cluster.Spec.Terminators)
}

// deriveMetadata sets the metadata that are derived from the status, atomically with the status. These labels decide which
// controllers may see a logical cluster, so they must neither be stale nor writable for tenants.
func deriveMetadata(cluster *corev1alpha1.LogicalCluster) {
	cluster.Labels = StatusLabels(cluster.Labels, cluster.Status)
	if cluster.DeletionTimestamp == nil {
		// When there are no terminators, the finalizer is removed by the deletion.
		cluster.Finalizers = withFinalizer(cluster.Finalizers, corev1alpha1.LogicalClusterHasTerminatorsFinalizer, len(cluster.Status.Terminators) > 0)
	}
	if cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseReady {
		cluster.Annotations = WithTrimmedOwner(cluster.Annotations)
	}
}

func withFinalizer(finalizers []string, finalizer string, present bool) []string {
	switch has := slices.Contains(finalizers, finalizer); {
	case has == present:
		return finalizers
	case present:
		return append(slices.Clone(finalizers), finalizer)
	}
	return slices.DeleteFunc(slices.Clone(finalizers), func(other string) bool { return other == finalizer })
}

// WithTrimmedOwner returns annotations with the owner reduced to the user name: groups and extra are needed only to
// create the workspace, and must not be visible afterwards. An annotation that cannot be decoded is kept.
func WithTrimmedOwner(annotations map[string]string) map[string]string {
	text, ok := annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]
	if !ok {
		return annotations
	}
	info := authenticationv1.UserInfo{}
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return annotations
	}
	trimmed, err := json.Marshal(map[string]string{"username": info.Username})
	if err != nil || string(trimmed) == text {
		return annotations
	}
	annotations = maps.Clone(annotations)
	annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] = string(trimmed)
	return annotations
}
