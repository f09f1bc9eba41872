package v1alpha1

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Get returns a copy of the condition of that type, or nil if the object has none.
func Get(from Getter, conditionType Type) *Condition {
	for _, condition := range from.GetConditions() {
		if condition.Type == conditionType {
			return &condition
		}
	}
	return nil
}

// Set stores a condition. An unchanged condition keeps its transition time; otherwise it gets the given time, or now if
// that is zero. Severity is kept for False only, and True has no reason.
func Set(to Setter, condition Condition) {
	if condition.Status != corev1.ConditionFalse {
		condition.Severity = SeverityNone
	}
	if condition.Status == corev1.ConditionTrue {
		condition.Reason = ""
	}
	if condition.LastTransitionTime.IsZero() {
		condition.LastTransitionTime = metav1.Now()
	}
	condition.LastTransitionTime = metav1.NewTime(condition.LastTransitionTime.UTC().Truncate(time.Second))

	// The list is copied before it changes, because the object may share it with a cache.
	conditions := slices.Clone(to.GetConditions())
	at := slices.IndexFunc(conditions, func(c Condition) bool { return c.Type == condition.Type })
	switch {
	case at < 0:
		conditions = append(conditions, condition)
	case equalConditions(conditions[at], condition):
		return
	default:
		conditions[at] = condition
	}
	slices.SortStableFunc(conditions, compareConditions)
	to.SetConditions(conditions)
}

// Delete removes the condition of that type, if there is one.
func Delete(to Setter, conditionType Type) {
	conditions := to.GetConditions()
	kept := slices.DeleteFunc(slices.Clone(conditions), func(c Condition) bool { return c.Type == conditionType })
	if len(kept) != len(conditions) {
		to.SetConditions(kept)
	}
}

// MarkTrue sets a condition to True.
func MarkTrue(to Setter, conditionType Type) {
	Set(to, Condition{Type: conditionType, Status: corev1.ConditionTrue})
}

// MarkFalse sets a condition to False with a formatted message.
func MarkFalse(to Setter, conditionType Type, reason string, severity Severity, format string, args ...any) {
	Set(to, Condition{Type: conditionType, Status: corev1.ConditionFalse, Reason: reason, Severity: severity, Message: fmt.Sprintf(format, args...)})
}

// MarkUnknown sets a condition to Unknown with a formatted message.
func MarkUnknown(to Setter, conditionType Type, reason, format string, args ...any) {
	Set(to, Condition{Type: conditionType, Status: corev1.ConditionUnknown, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// IsTrue reports whether the condition exists and is True.
func IsTrue(from Getter, conditionType Type) bool {
	return hasStatus(from, conditionType, corev1.ConditionTrue)
}

// IsFalse reports whether the condition exists and is False.
func IsFalse(from Getter, conditionType Type) bool {
	return hasStatus(from, conditionType, corev1.ConditionFalse)
}

// IsUnknown reports whether the condition is absent or Unknown.
func IsUnknown(from Getter, conditionType Type) bool {
	condition := Get(from, conditionType)
	return condition == nil || condition.Status == corev1.ConditionUnknown
}

// GetReason returns the reason of the condition, or "" if there is none.
func GetReason(from Getter, conditionType Type) string {
	if condition := Get(from, conditionType); condition != nil {
		return condition.Reason
	}
	return ""
}

// GetMessage returns the message of the condition, or "" if there is none.
func GetMessage(from Getter, conditionType Type) string {
	if condition := Get(from, conditionType); condition != nil {
		return condition.Message
	}
	return ""
}

// SetSummary sets Ready to the most severe state of the given types, or of all other conditions if none is given: False
// of severity Error, then Warning, then Info, then True, then Unknown. Of several conditions in the same state, the
// first by type is used. Without conditions to summarize, Ready is unchanged.
func SetSummary(to Setter, types ...Type) {
	worst := worstOf(to, types...)
	if worst == nil {
		return
	}
	message := worst.Message
	if worst.Status == corev1.ConditionTrue {
		message = "" // of one of many that are as they should be
	}
	Set(to, Condition{Type: Ready, Status: worst.Status, Severity: worst.Severity, Reason: worst.Reason, Message: message})
}

// Worst returns the False condition that SetSummary would choose of all conditions, or nil if none is False.
func Worst(from Getter) *Condition {
	if worst := worstOf(from); worst != nil && worst.Status == corev1.ConditionFalse {
		return worst
	}
	return nil
}

func worstOf(from Getter, types ...Type) *Condition {
	var worst *Condition
	for _, condition := range from.GetConditions() {
		if condition.Type == Ready || (len(types) > 0 && !slices.Contains(types, condition.Type)) {
			continue
		}
		if worst == nil || summaryRank(condition) < summaryRank(*worst) || (summaryRank(condition) == summaryRank(*worst) && condition.Type < worst.Type) {
			worst = &condition
		}
	}
	return worst
}

func summaryRank(condition Condition) int {
	switch {
	case condition.Status == corev1.ConditionFalse && condition.Severity == SeverityError:
		return 0
	case condition.Status == corev1.ConditionFalse && condition.Severity == SeverityWarning:
		return 1
	case condition.Status == corev1.ConditionFalse:
		return 2
	case condition.Status == corev1.ConditionTrue:
		return 3
	default:
		return 4
	}
}

func hasStatus(from Getter, conditionType Type, status corev1.ConditionStatus) bool {
	condition := Get(from, conditionType)
	return condition != nil && condition.Status == status
}

func equalConditions(a, b Condition) bool {
	return a.Status == b.Status && a.Severity == b.Severity && a.Reason == b.Reason && a.Message == b.Message
}

func compareConditions(a, b Condition) int {
	switch {
	case a.Type == b.Type:
		return 0
	case a.Type == Ready:
		return -1
	case b.Type == Ready:
		return 1
	default:
		return cmp.Compare(a.Type, b.Type)
	}
}
