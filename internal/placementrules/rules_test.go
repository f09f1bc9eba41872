package placementrules

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

func count(name corev1.ResourceName, n int64) corev1.ResourceList {
	return corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)}
}

// TestFirstBrokenRule breaks one rule after the other, from the last one: the first of them is named.
func TestFirstBrokenRule(t *testing.T) {
	shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	conditionsv1alpha1.MarkTrue(shard, conditionsv1alpha1.Ready)
	state := FromStatus(shard, 0)
	for _, step := range []struct {
		rule   Rule
		breaks func()
	}{
		{"", func() {}},
		{Schedulable, func() {
			state.Conditions = append(state.Conditions, conditionsv1alpha1.Condition{Type: corev1alpha1.ShardSchedulable, Status: corev1.ConditionFalse, Message: "no memory"})
		}},
		{Healthy, func() { state.Conditions[0].Status, state.Conditions[0].Message = corev1.ConditionFalse, "no etcd" }},
		{HasRoom, func() { state.Load, state.Capacity = count(LogicalClusters, 3), count(LogicalClusters, 3) }},
		{Reporting, func() { state.Silent = true }},
		{NotClosed, func() { shard.Annotations = map[string]string{corev1alpha1.UnschedulableAnnotationKey: ""} }},
	} {
		step.breaks()
		have := Rule("")
		if _, refusal := state.Candidate(); refusal != nil {
			have = refusal.Rule
		}
		if have != step.rule {
			t.Errorf("got %q, want %q", have, step.rule)
		}
	}
	if _, refusal := state.Candidate(Healthy, HasRoom); refusal == nil || refusal.Rule != Healthy || refusal.Message != "is not healthy: no etcd" {
		t.Errorf("of two rules, got %+v", refusal)
	}
}

// TestLimitsInsteadOfFlags: a hard limit counts the logical clusters of the system, the flag does not.
func TestLimitsInsteadOfFlags(t *testing.T) {
	shard := &corev1alpha1.Shard{}
	shard.Spec.ResourceLimits = &corev1alpha1.ShardResourceLimits{Hard: count(Workspaces, 20), Soft: count(Workspaces, 10)}
	state := State{Shard: shard, Load: count(LogicalClusters, 6), Used: count(Workspaces, 8), Capacity: count(LogicalClusters, 7), Pending: 1}
	if c, refusal := state.Candidate(HasRoom); refusal != nil || c.Load != 7 || c.Capacity != 18 || c.Second {
		t.Errorf("got %+v, %+v", c, refusal)
	}
	state.Pending = 2
	if c, _ := state.Candidate(HasRoom); !c.Second {
		t.Error("the soft limit is not reached with what is pending")
	}
	state.Pending = 12
	if _, refusal := state.Candidate(HasRoom); refusal == nil || refusal.Message != "is full: it has 20 of 20 workspaces" {
		t.Errorf("got %+v", refusal)
	}
}

func TestWithoutName(t *testing.T) {
	for selector, want := range map[string]string{"": "", "name=a": "", "name=a,region=b": "region=b", "!name": "", "tier in (x,y)": "tier in (x,y)"} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if got := WithoutName(parsed).String(); got != want {
			t.Errorf("%q: got %q, want %q", selector, got, want)
		}
	}
	if WithoutName(labels.Nothing()).Matches(labels.Set{}) {
		t.Error("a selector of nothing selects everything")
	}
}

func TestShardOf(t *testing.T) {
	workspace := func(key, value string) *tenancyv1alpha1.Workspace {
		return &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}}}
	}
	for name, tc := range map[string]struct {
		workspace *tenancyv1alpha1.Workspace
		want      string
	}{
		"none":                {&tenancyv1alpha1.Workspace{}, ""},
		"by name":             {workspace(corev1alpha1.ShardAnnotationKey, "gone"), "gone"},
		"by hash":             {workspace(tenancyv1alpha1.WorkspaceShardHashAnnotationKey, ShardHash("b")), "b"},
		"by hash, of another": {workspace(tenancyv1alpha1.WorkspaceShardHashAnnotationKey, ShardHash("c")), ""},
	} {
		if got := ShardOf(tc.workspace, "a", "b"); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
