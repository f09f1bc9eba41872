package registry

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// standardFinalizers are the finalizers of Kubernetes without a domain.
var standardFinalizers = []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes)}

// finalizerWarnings returns a warning, as for custom resources, for every added finalizer that is not
// "<domain>/<name>".
func finalizerWarnings(finalizers, existing []string) []string {
	path := field.NewPath("metadata", "finalizers")
	var warnings []string
	for _, finalizer := range finalizers {
		if slices.Contains(existing, finalizer) {
			continue
		}
		for _, message := range validation.IsQualifiedName(finalizer) {
			warnings = append(warnings, fmt.Sprintf("%s: %q: %s", path, finalizer, message))
		}
		if !strings.Contains(finalizer, "/") && !slices.Contains(standardFinalizers, finalizer) {
			warnings = append(warnings, fmt.Sprintf("%s: %q: use <domain>/<name> to avoid conflicts with other finalizers", path, finalizer))
		}
	}
	return warnings
}
