// Package placementrules has the rules by which a shard may have a logical cluster, and the order in which shards are preferred. The scheduler
// of new workspaces, the shards that decide about migrations, drains and the rebalancer share them: a workspace moves to where it could
// be created. It contains pure functions; callers provide the state of each shard.
package placementrules

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Resource names in reports, status and limits of shards.
const (
	// LogicalClusters are those of workspaces, in the load and in the capacity of a shard.
	LogicalClusters corev1.ResourceName = "logicalclusters"
	// Workspaces are all logical clusters, those of the system included, in limits and in what is used of them.
	Workspaces corev1.ResourceName = "workspaces"
)

// shardNameLabel is the label of every Shard with its name.
const shardNameLabel = "name"

// shardHashLength is the length of the hash of the name of a shard in an annotation of Workspaces.
const shardHashLength = 8

// State is what is known about a shard.
type State struct {
	Shard *corev1alpha1.Shard
	// Silent is set if the shard has not reported lately.
	Silent               bool
	Load, Capacity, Used corev1.ResourceList
	// Conditions are Ready and Schedulable.
	Conditions conditionsv1alpha1.Conditions
	// Pending is the number of logical clusters that will be on the shard, and that its load does not include.
	Pending int64
}

// FromStatus returns what the status of a Shard says.
func FromStatus(shard *corev1alpha1.Shard, pending int64) State {
	ready := conditionsv1alpha1.Get(shard, conditionsv1alpha1.Ready)
	return State{
		Shard: shard, Silent: ready == nil || ready.Status == corev1.ConditionUnknown, Load: shard.Status.Load, Capacity: shard.Status.Capacity,
		Used: shard.Status.Used, Conditions: shard.Status.Conditions, Pending: pending,
	}
}

// Rule is a rule that a shard breaks.
type Rule string

// Rules, in the order in which they are checked.
const (
	NotClosed   Rule = "NotClosed"   // no administrator or drain has closed the shard, and it is not being deleted
	Reporting   Rule = "Reporting"   // the shard has reported lately
	HasRoom     Rule = "HasRoom"     // it is below its limits
	Healthy     Rule = "Healthy"     // it serves
	Schedulable Rule = "Schedulable" // it has memory and storage
)

// Refusal is why a shard gets no more logical clusters.
type Refusal struct {
	Rule Rule
	// Message is a predicate, such as "is full: ...".
	Message string
}

// Candidate is a shard that can have one more logical cluster.
type Candidate struct {
	Name string
	// Load is the number of logical clusters, with those that are pending; Capacity is 0 if unlimited.
	Load, Capacity int64
	// Second reports whether any other shard is preferred, for instance because the soft limit is reached.
	Second bool
}

// Candidate returns the shard as a candidate, or the first rule of those given that it breaks; of all without any.
func (s State) Candidate(rules ...Rule) (Candidate, *Refusal) {
	if len(rules) == 0 {
		rules = []Rule{NotClosed, Reporting, HasRoom, Healthy, Schedulable}
	}
	c, full := s.fill()
	for _, rule := range rules {
		message := ""
		switch rule {
		case NotClosed:
			message = closedMessage(s.Shard)
		case Reporting:
			if s.Silent {
				message = "has not reported lately"
			}
		case HasRoom:
			message = full
		case Healthy:
			message = falseMessage(s.Conditions, conditionsv1alpha1.Ready, "is not healthy: ")
		case Schedulable:
			message = falseMessage(s.Conditions, corev1alpha1.ShardSchedulable, "accepts no new workspaces: ")
		}
		if message != "" {
			return c, &Refusal{rule, message}
		}
	}
	return c, nil
}

func closedMessage(shard *corev1alpha1.Shard) string {
	if _, closed := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; closed {
		return "is closed by its annotation " + corev1alpha1.UnschedulableAnnotationKey
	}
	if shard.DeletionTimestamp != nil {
		return "is being deleted"
	}
	return ""
}

// fill compares the load with the limits. The limit of the Shard takes the place of that of the flag.
func (s State) fill() (c Candidate, full string) {
	c = Candidate{Name: s.Shard.Name, Load: Value(s.Load, LogicalClusters) + s.Pending, Capacity: Value(s.Capacity, LogicalClusters)}
	used := Value(s.Used, Workspaces) + s.Pending
	soft, hard := Limits(s.Shard.Spec.ResourceLimits)
	if c.Second = soft > 0 && used >= soft; hard > 0 {
		if used >= hard {
			return c, fmt.Sprintf("is full: it has %d of %d workspaces", used, hard)
		}
		c.Capacity = hard - (used - c.Load) // system logical clusters take a part of it
	}
	if c.Capacity > 0 && c.Load >= c.Capacity {
		return c, fmt.Sprintf("is full: it has %d of %d logical clusters", c.Load, c.Capacity)
	}
	return c, ""
}

func falseMessage(conditions conditionsv1alpha1.Conditions, of conditionsv1alpha1.Type, text string) string {
	for _, condition := range conditions {
		if condition.Type == of && condition.Status == corev1.ConditionFalse {
			return text + cmp.Or(condition.Message, condition.Reason)
		}
	}
	return ""
}

// UnhealthyMessage returns why a shard with these conditions accepts no new logical clusters, or "".
func UnhealthyMessage(conditions conditionsv1alpha1.Conditions) string {
	return cmp.Or(falseMessage(conditions, conditionsv1alpha1.Ready, "is not healthy: "), falseMessage(conditions, corev1alpha1.ShardSchedulable, "accepts no new workspaces: "))
}

// Compare orders candidates, the best first: by the used share of the capacity if both have one, else by the load.
func (c Candidate) Compare(than Candidate) int {
	if c.Second != than.Second {
		if c.Second {
			return 1
		}
		return -1
	}
	if c.Capacity > 0 && than.Capacity > 0 {
		return cmp.Compare(float64(c.Load)/float64(c.Capacity), float64(than.Load)/float64(than.Capacity))
	}
	return cmp.Compare(c.Load, than.Load)
}

// Limits returns the limits of workspaces that apply, 0 where there is none.
func Limits(limits *corev1alpha1.ShardResourceLimits) (soft, hard int64) {
	if limits == nil {
		return 0, 0
	}
	return Value(limits.Soft, Workspaces), Value(limits.Hard, Workspaces)
}

// Value returns a quantity of a list, 0 if it is negative or absent.
func Value(list corev1.ResourceList, name corev1.ResourceName) int64 {
	quantity := list[name]
	return max(quantity.Value(), 0)
}

// ExternalURL returns the URL of a shard for clients, without a slash at its end.
func ExternalURL(shard *corev1alpha1.Shard) string {
	return strings.TrimSuffix(cmp.Or(shard.Spec.ExternalURL, shard.Spec.BaseURL), "/")
}

// Selector returns the selector of shards of a workspace.
func Selector(workspace *tenancyv1alpha1.Workspace) (labels.Selector, error) {
	if workspace.Spec.Location == nil || workspace.Spec.Location.Selector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(workspace.Spec.Location.Selector)
	if err != nil {
		return nil, fmt.Errorf("spec.location.selector is invalid: %w", err)
	}
	return selector, nil
}

// WithoutName returns a selector without what it demands of the name of the shard: it says where a workspace was created. Who names a
// shard for a migration decides about another one, as clients of kcp expect.
func WithoutName(all labels.Selector) labels.Selector {
	requirements, selectable := all.Requirements()
	if !selectable {
		return all
	}
	selector := labels.NewSelector()
	for _, requirement := range requirements {
		if requirement.Key() != shardNameLabel {
			selector = selector.Add(requirement)
		}
	}
	return selector
}

// ShardOf returns the name of the shard that is stored in a Workspace, or "". Old Workspaces have only a hash of it.
func ShardOf(workspace *tenancyv1alpha1.Workspace, names ...string) string {
	if name := workspace.Annotations[corev1alpha1.ShardAnnotationKey]; name != "" {
		return name
	}
	if hash := workspace.Annotations[tenancyv1alpha1.WorkspaceShardHashAnnotationKey]; hash != "" {
		for _, name := range names {
			if ShardHash(name) == hash {
				return name
			}
		}
	}
	return ""
}

// ShardHash returns the hash of the name of a shard in the annotation of Workspaces.
func ShardHash(name string) string {
	return logicalcluster.Base36Sha224([]byte(name))[:shardHashLength]
}
