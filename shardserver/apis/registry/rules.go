package registry

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Validation rules of CRD schemas, for fields where absent and empty are the same.

var (
	initializerPattern = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$`)

	phases = []corev1alpha1.LogicalClusterPhaseType{
		corev1alpha1.LogicalClusterPhaseScheduling,
		corev1alpha1.LogicalClusterPhaseInitializing,
		corev1alpha1.LogicalClusterPhaseReady,
		corev1alpha1.LogicalClusterPhaseUnavailable,
		corev1alpha1.LogicalClusterPhaseInactive,
		corev1alpha1.LogicalClusterPhaseTerminating,
		corev1alpha1.LogicalClusterPhaseDeleting,
	}
)

// ValidateRequired rejects an empty value.
func ValidateRequired(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// ValidatePattern rejects a value that does not match. Empty values are valid; see ValidateRequired.
func ValidatePattern(value string, pattern *regexp.Regexp, path *field.Path) field.ErrorList {
	if value == "" || pattern.MatchString(value) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("should match '%s'", pattern))}
}

// ValidateMaxLength rejects more than limit characters.
func ValidateMaxLength(value string, limit int, path *field.Path) field.ErrorList {
	if utf8.RuneCountInString(value) > limit {
		return field.ErrorList{field.TooLong(path, value, limit)}
	}
	return nil
}

// ValidateOneOf rejects a value that is not allowed. Empty values are valid; see ValidateRequired.
func ValidateOneOf[S ~string](value S, allowed []S, path *field.Path) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// ValidateURI rejects a value that is neither an absolute URL nor an absolute path. Empty values are valid; see ValidateRequired.
func ValidateURI(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	if _, err := url.ParseRequestURI(value); err != nil {
		return field.ErrorList{field.Invalid(path, value, "must be of type uri")}
	}
	return nil
}

// ValidateImmutable rejects a change.
func ValidateImmutable[V comparable](value, old V, path *field.Path) field.ErrorList {
	if value != old {
		return field.ErrorList{field.Invalid(path, value, path.String()+" is immutable")}
	}
	return nil
}

// MaxSelectorTerms bounds the labels, expressions and values of a label selector: controllers compare each with the labels of each object.
const MaxSelectorTerms = 1000

// ValidateSelector checks that each requirement of a label selector is complete, and that there are not too many. A
// condition of the object reports whether the selector is valid.
func ValidateSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	terms := len(selector.MatchLabels) + len(selector.MatchExpressions)
	for i := range selector.MatchExpressions {
		terms += len(selector.MatchExpressions[i].Values)
	}
	if terms > MaxSelectorTerms {
		return field.ErrorList{field.Invalid(path, terms, fmt.Sprintf("must have at most %d labels, expressions and values", MaxSelectorTerms))}
	}
	var errs field.ErrorList
	for i, expression := range selector.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		errs = append(errs, ValidateRequired(expression.Key, at.Child("key"))...)
		errs = append(errs, ValidateRequired(string(expression.Operator), at.Child("operator"))...)
	}
	return errs
}

// ValidateInitializers validates a list of initializers or terminators.
func ValidateInitializers[S ~string](list []S, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range list {
		if !initializerPattern.MatchString(string(name)) { // an empty item does not match either
			errs = append(errs, field.Invalid(path.Index(i), string(name), fmt.Sprintf("should match '%s'", initializerPattern)))
		}
	}
	return errs
}

// ValidatePhase validates the phase of a logical cluster or workspace.
func ValidatePhase(phase corev1alpha1.LogicalClusterPhaseType, path *field.Path) field.ErrorList {
	return ValidateOneOf(phase, phases, path)
}

// ValidateConditions checks that each condition is complete.
func ValidateConditions(conditions conditionsv1alpha1.Conditions, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, condition := range conditions {
		at := path.Index(i)
		errs = append(errs, ValidateRequired(string(condition.Type), at.Child("type"))...)
		errs = append(errs, ValidateRequired(string(condition.Status), at.Child("status"))...)
		if condition.LastTransitionTime.IsZero() {
			errs = append(errs, field.Required(at.Child("lastTransitionTime"), ""))
		}
	}
	return errs
}
