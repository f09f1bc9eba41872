package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Resource names in the load and the capacity of a shard.
const (
	LogicalClusters                     = placementrules.LogicalClusters
	Objects         corev1.ResourceName = "objects"
	Memory          corev1.ResourceName = corev1.ResourceMemory
	// Storage is the space in etcd, in bytes.
	Storage corev1.ResourceName = corev1.ResourceStorage
	// Workspaces are all logical clusters, in the limits of a Shard and in what is used of them.
	Workspaces = placementrules.Workspaces
)

const (
	// memoryHighPercent is the percentage of its memory limit above which a shard accepts no more logical clusters: the
	// rest is for garbage and for the growth of existing ones. Below memoryLowPercent it accepts them again.
	memoryHighPercent = 75
	memoryLowPercent  = 70
	// measureTimeout bounds the etcd requests of callers without a context.
	measureTimeout = 2 * time.Second
)

// ReporterConfig configures a Reporter. Capacities of 0 are unlimited.
type ReporterConfig struct {
	Registry                       *storage.Registry
	Keys                           KeyCounter
	MaxLogicalClusters, MaxObjects int64
	// MemoryLimit is that of the Go runtime (GOMEMLIMIT), in bytes; math.MaxInt64 without a limit.
	MemoryLimit int64
	// Hidden returns the number of logical clusters that this shard stores, but another one serves: those that move. nil is none.
	Hidden func() int
	// Space returns the space that etcd has left.
	Space func() etcdkeys.Space
	// Healthy returns an error if the shard should get no traffic.
	Healthy func() error
	// Refused describes the objects that the cache server refuses; "" if there are none, nil without a cache server.
	Refused func() string
	// Outdated returns the reason and the message of the condition MovesKnown, both empty if it is True; nil if logical clusters do not move.
	Outdated func() (reason, message string)
	// Shard returns the Shard object of this shard, or nil if it is not known.
	Shard func() *corev1alpha1.Shard
}

// Reporter creates the reports of this shard.
type Reporter struct {
	cfg   ReporterConfig
	meter meter

	mu          sync.Mutex
	beat        int64
	conditions  conditionsv1alpha1.Conditions
	memoryShort bool // memory is short
}

// NewReporter returns a Reporter.
func NewReporter(cfg ReporterConfig) *Reporter {
	return &Reporter{cfg: cfg, meter: meter{keys: cfg.Keys, registry: cfg.Registry, space: cfg.Space, hidden: cfg.Hidden}}
}

// Report returns the next report of this shard. The field Complete is not set.
func (r *Reporter) Report(ctx context.Context) (shardingv1alpha1.ShardReportSpec, error) {
	spec, err := r.Current(ctx)
	if err != nil {
		return spec, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beat = max(r.beat+1, time.Now().UnixMilli()) // increases after a restart and across replicas, too
	spec.Beat = r.beat
	return spec, nil
}

// Current returns the current state of the shard: a report without a beat.
func (r *Reporter) Current(ctx context.Context) (shardingv1alpha1.ShardReportSpec, error) {
	load, err := r.meter.measure(ctx)
	if err != nil {
		return shardingv1alpha1.ShardReportSpec{}, fmt.Errorf("measuring the load of this shard: %w", err)
	}
	return shardingv1alpha1.ShardReportSpec{Capacity: r.capacity(load), Load: quantities(load), Used: used(load), Conditions: r.setConditions(load)}, nil
}

// Full returns the reason why the shard accepts no new logical clusters, or "".
func (r *Reporter) Full() string {
	return r.full(r.Load())
}

// Load returns the load of the shard, or the previous one if it cannot be measured now.
func (r *Reporter) Load() Load {
	ctx, cancel := context.WithTimeout(context.Background(), measureTimeout)
	defer cancel()
	load, err := r.meter.measure(ctx)
	if err != nil {
		klog.V(2).InfoS("Failed to measure the load of this shard", "err", err)
	}
	return load
}

func (r *Reporter) setConditions(load Load) conditionsv1alpha1.Conditions {
	full := r.full(load)
	r.mu.Lock()
	defer r.mu.Unlock()
	to := &conditionList{r.conditions}
	if err := errors.Join(r.cfg.Healthy(), load.Space.Err()); err != nil {
		conditionsv1alpha1.MarkFalse(to, conditionsv1alpha1.Ready, corev1alpha1.ReasonShardNotHealthy, conditionsv1alpha1.SeverityError, "%s", err.Error())
	} else {
		conditionsv1alpha1.MarkTrue(to, conditionsv1alpha1.Ready)
	}
	if full != "" {
		conditionsv1alpha1.MarkFalse(to, corev1alpha1.ShardSchedulable, corev1alpha1.ReasonShardFull, conditionsv1alpha1.SeverityWarning, "%s", full)
	} else {
		conditionsv1alpha1.MarkTrue(to, corev1alpha1.ShardSchedulable)
	}
	r.setPublished(to)
	r.setMovesKnown(to)
	r.conditions = to.conditions
	return r.conditions
}

func (r *Reporter) setPublished(to *conditionList) {
	if r.cfg.Refused == nil {
		return
	}
	if refused := r.cfg.Refused(); refused != "" {
		conditionsv1alpha1.MarkFalse(to, corev1alpha1.ShardPublished, corev1alpha1.ReasonObjectsRefused, conditionsv1alpha1.SeverityWarning, "%s", refused)
		return
	}
	conditionsv1alpha1.MarkTrue(to, corev1alpha1.ShardPublished)
}

func (r *Reporter) setMovesKnown(to *conditionList) {
	if r.cfg.Outdated == nil {
		return
	}
	if reason, message := r.cfg.Outdated(); reason != "" {
		conditionsv1alpha1.MarkFalse(to, corev1alpha1.ShardMovesKnown, reason, conditionsv1alpha1.SeverityWarning, "%s", message)
		return
	}
	conditionsv1alpha1.MarkTrue(to, corev1alpha1.ShardMovesKnown)
}

func (r *Reporter) full(load Load) string {
	hard := r.hardLimit()
	switch {
	case hard > 0 && load.Workspaces >= hard:
		return fmt.Sprintf("The shard has reached its limit of %d workspaces, in spec.resourceLimits.hard of its Shard", hard)
	case hard == 0 && r.cfg.MaxLogicalClusters > 0 && load.LogicalClusters >= r.cfg.MaxLogicalClusters:
		return fmt.Sprintf("The shard has reached its capacity of %d logical clusters", r.cfg.MaxLogicalClusters)
	case r.cfg.MaxObjects > 0 && load.Objects >= r.cfg.MaxObjects:
		return fmt.Sprintf("The shard has reached its capacity of %d objects", r.cfg.MaxObjects)
	case load.Space.Level() != etcdkeys.SpaceOK:
		return "The storage of the shard is almost full: " + load.Space.Shortage()
	case r.isMemoryShort(load.Memory):
		limit := bytes(r.cfg.MemoryLimit)
		return fmt.Sprintf("The shard needs more than %d percent of its memory limit of %s", memoryLowPercent, limit.String())
	}
	return ""
}

// hardLimit returns the limit of the Shard object, which takes the place of the flag's, or 0 without one.
func (r *Reporter) hardLimit() int64 {
	if r.cfg.Shard == nil {
		return 0
	}
	shard := r.cfg.Shard()
	if shard == nil {
		return 0
	}
	_, hard := placementrules.Limits(shard.Spec.ResourceLimits)
	return hard
}

// isMemoryShort reports whether memory is short, with a hysteresis, so that the result does not change with every
// collection.
func (r *Reporter) isMemoryShort(needed int64) bool {
	if r.cfg.MemoryLimit <= 0 || r.cfg.MemoryLimit == math.MaxInt64 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	bound := r.cfg.MemoryLimit / 100 * memoryHighPercent
	if r.memoryShort {
		bound = r.cfg.MemoryLimit / 100 * memoryLowPercent
	}
	r.memoryShort = needed > bound
	return r.memoryShort
}

func (r *Reporter) capacity(load Load) corev1.ResourceList {
	capacity := corev1.ResourceList{}
	if r.cfg.MaxLogicalClusters > 0 && r.hardLimit() == 0 {
		capacity[LogicalClusters] = *resource.NewQuantity(r.cfg.MaxLogicalClusters, resource.DecimalSI)
	}
	if r.cfg.MaxObjects > 0 {
		capacity[Objects] = *resource.NewQuantity(r.cfg.MaxObjects, resource.DecimalSI)
	}
	if r.cfg.MemoryLimit > 0 && r.cfg.MemoryLimit < math.MaxInt64 {
		capacity[Memory] = bytes(r.cfg.MemoryLimit)
	}
	if load.Space.Quota > 0 {
		capacity[Storage] = bytes(load.Space.Quota)
	}
	return capacity
}

func quantities(load Load) corev1.ResourceList {
	return corev1.ResourceList{
		LogicalClusters: *resource.NewQuantity(load.LogicalClusters, resource.DecimalSI),
		Objects:         *resource.NewQuantity(load.Objects, resource.DecimalSI),
		Memory:          bytes(load.Memory),
		Storage:         bytes(roundStorage(load.Space)),
	}
}

func used(load Load) corev1.ResourceList {
	return corev1.ResourceList{Workspaces: *resource.NewQuantity(load.Workspaces, resource.DecimalSI)}
}

// storageSteps is the number of steps in which the used part of the storage is reported: etcd grows and shrinks all the time.
const storageSteps = 50

func roundStorage(space etcdkeys.Space) int64 {
	step := max(space.Quota/storageSteps, 1)
	return space.InUse / step * step
}

func bytes(count int64) resource.Quantity { return *resource.NewQuantity(count, resource.BinarySI) }

// conditionList implements conditionsv1alpha1.Setter for a list of conditions.
type conditionList struct{ conditions conditionsv1alpha1.Conditions }

func (c *conditionList) GetConditions() conditionsv1alpha1.Conditions   { return c.conditions }
func (c *conditionList) SetConditions(to conditionsv1alpha1.Conditions) { c.conditions = to }
