package heartbeat

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// limited returns a Shard with limits of workspaces; "" is none.
func limited(soft, hard string) func() *corev1alpha1.Shard {
	tier := func(value string) corev1.ResourceList {
		if value == "" {
			return nil
		}
		return corev1.ResourceList{Workspaces: resource.MustParse(value)}
	}
	shard := &corev1alpha1.Shard{Spec: corev1alpha1.ShardSpec{ResourceLimits: &corev1alpha1.ShardResourceLimits{Soft: tier(soft), Hard: tier(hard)}}}
	return func() *corev1alpha1.Shard { return shard }
}

func TestLimitsApplied(t *testing.T) {
	for name, test := range map[string]struct {
		shard   *corev1alpha1.Shard
		message string
		invalid bool
	}{
		"no limits":              {&corev1alpha1.Shard{}, "no limits configured", false},
		"empty limits":           {limited("", "")(), "no limits configured", false},
		"a hard limit":           {limited("", "7")(), "soft/hard: workspaces=-/7", false},
		"both":                   {limited("5", "7")(), "soft/hard: workspaces=5/7", false},
		"a negative limit":       {limited("", "-1")(), "soft/hard: workspaces=-/-1; hard limit of workspaces is negative: -1", true},
		"soft is not below hard": {limited("7", "7")(), "soft/hard: workspaces=7/7; soft limit of workspaces is not below the hard limit: 7, 7", true},
		"sorted by resource": {&corev1alpha1.Shard{Spec: corev1alpha1.ShardSpec{ResourceLimits: &corev1alpha1.ShardResourceLimits{
			Soft: corev1.ResourceList{"b": resource.MustParse("1"), "a": resource.MustParse("2k")}, Hard: corev1.ResourceList{"b": resource.MustParse("3")},
		}}}, "soft/hard: a=2k/-, b=1/3", false},
	} {
		t.Run(name, func(t *testing.T) {
			setStatus(test.shard, nil, 0)
			condition := conditionsv1alpha1.Get(test.shard, corev1alpha1.ShardResourceLimitsApplied)
			if condition == nil || (condition.Status == corev1.ConditionFalse) != test.invalid {
				t.Fatalf("got %+v", condition)
			}
			if condition.Message != test.message || test.invalid && (condition.Reason != corev1alpha1.ReasonInvalidResourceLimits || condition.Severity != conditionsv1alpha1.SeverityWarning) {
				t.Errorf("got %+v, want message %q", condition, test.message)
			}
		})
	}
}

func TestCordonedTakesPrecedence(t *testing.T) {
	full := &shardingv1alpha1.ShardReportSpec{
		Used:       corev1.ResourceList{Workspaces: resource.MustParse("4")},
		Conditions: conditionsv1alpha1.Conditions{{Type: corev1alpha1.ShardSchedulable, Status: corev1.ConditionFalse, Reason: corev1alpha1.ReasonShardFull}},
	}
	shard := &corev1alpha1.Shard{}
	setStatus(shard, full, time.Second)
	if got := conditionsv1alpha1.GetReason(shard, corev1alpha1.ShardSchedulable); got != corev1alpha1.ReasonShardFull {
		t.Errorf("without the annotation: got %s", got)
	}
	if used := shard.Status.Used[Workspaces]; used.Value() != 4 {
		t.Errorf("got %v used", shard.Status.Used)
	}
	shard.Annotations = map[string]string{corev1alpha1.UnschedulableAnnotationKey: ""}
	for what, report := range map[string]*shardingv1alpha1.ShardReportSpec{"full": full, "silent": nil} {
		setStatus(shard, report, time.Second)
		condition := conditionsv1alpha1.Get(shard, corev1alpha1.ShardSchedulable)
		const message = "shard is cordoned via the experimental.core.kcp.io/unschedulable annotation, no new workspaces are scheduled onto it"
		if condition.Reason != "Cordoned" || condition.Severity != conditionsv1alpha1.SeverityInfo || condition.Message != message {
			t.Errorf("%s: got %+v", what, condition)
		}
	}
	delete(shard.Annotations, corev1alpha1.UnschedulableAnnotationKey)
	setStatus(shard, nil, 0)
	if condition := conditionsv1alpha1.Get(shard, corev1alpha1.ShardSchedulable); condition != nil {
		t.Errorf("opened again, without a report: got %+v", condition)
	}
	setStatus(shard, full, time.Second)
	if got := conditionsv1alpha1.GetReason(shard, corev1alpha1.ShardSchedulable); got != corev1alpha1.ReasonShardFull {
		t.Errorf("opened again: got %s", got)
	}
}
