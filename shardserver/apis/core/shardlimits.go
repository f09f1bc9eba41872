package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// MarkLimits sets the condition about the limits of a Shard: which are set, and what is wrong with them.
func MarkLimits(shard *corev1alpha1.Shard) {
	message, complaints := describeLimits(shard.Spec.ResourceLimits)
	condition := conditionsv1alpha1.Condition{Type: corev1alpha1.ShardResourceLimitsApplied, Status: corev1.ConditionTrue, Message: message}
	if len(complaints) > 0 {
		condition.Status, condition.Severity = corev1.ConditionFalse, conditionsv1alpha1.SeverityWarning
		condition.Reason, condition.Message = corev1alpha1.ReasonInvalidResourceLimits, message+"; "+strings.Join(complaints, "; ")
	}
	conditionsv1alpha1.Set(shard, condition)
}

// MarkCordoned closes a shard that an administrator has closed, whatever it reports. Without a report, nothing else is known about a
// shard that was opened again.
func MarkCordoned(shard *corev1alpha1.Shard) {
	_, cordoned := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]
	switch {
	case cordoned:
		conditionsv1alpha1.MarkFalse(shard, corev1alpha1.ShardSchedulable, corev1alpha1.ReasonShardCordoned, conditionsv1alpha1.SeverityInfo,
			"shard is cordoned via the %s annotation, no new workspaces are scheduled onto it", corev1alpha1.UnschedulableAnnotationKey)
	case conditionsv1alpha1.GetReason(shard, corev1alpha1.ShardSchedulable) == corev1alpha1.ReasonShardCordoned:
		conditionsv1alpha1.Delete(shard, corev1alpha1.ShardSchedulable)
	}
}

func describeLimits(limits *corev1alpha1.ShardResourceLimits) (message string, complaints []string) {
	if limits == nil || len(limits.Soft)+len(limits.Hard) == 0 {
		return "no limits configured", nil
	}
	names := map[corev1.ResourceName]bool{}
	for _, tier := range []corev1.ResourceList{limits.Soft, limits.Hard} {
		for name := range tier {
			names[name] = true
		}
	}
	var tiers []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		soft, isSoft := limits.Soft[name]
		hard, isHard := limits.Hard[name]
		text := func(quantity interface{ String() string }, isSet bool) string {
			if !isSet {
				return "-"
			}
			return quantity.String()
		}
		tiers = append(tiers, fmt.Sprintf("%s=%s/%s", name, text(&soft, isSoft), text(&hard, isHard)))
		if soft.Sign() < 0 {
			complaints = append(complaints, fmt.Sprintf("soft limit of %s is negative: %s", name, soft.String()))
		}
		if hard.Sign() < 0 {
			complaints = append(complaints, fmt.Sprintf("hard limit of %s is negative: %s", name, hard.String()))
		}
		if soft.Sign() > 0 && hard.Sign() > 0 && soft.Cmp(hard) >= 0 {
			complaints = append(complaints, fmt.Sprintf("soft limit of %s is not below the hard limit: %s, %s", name, soft.String(), hard.String()))
		}
	}
	return "soft/hard: " + strings.Join(tiers, ", "), complaints
}
