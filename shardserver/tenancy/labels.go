package tenancy

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// maxLabelKey is how long a whole hashed label key is, prefix included.
const maxLabelKey = 63

// InitializerLabel returns the label that a LogicalCluster carries while the initializer remains: selectors cannot hold
// the initializer's name, which is longer than a label and has colons.
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

// statusLabels returns labels with those that repeat the status brought up to date: the phase, and one for each
// remaining initializer and terminator.
func statusLabels(labels map[string]string, status corev1alpha1.LogicalClusterStatus) map[string]string {
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
