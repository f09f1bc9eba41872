package heartbeat

import (
	"context"
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
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Names of what a shard has a load and a capacity of.
const (
	LogicalClusters corev1.ResourceName = "logicalclusters"
	Objects         corev1.ResourceName = "objects"
	Memory          corev1.ResourceName = corev1.ResourceMemory
)

const (
	// memoryFull is how much of its memory a shard needs when it takes nothing more, in percent: the rest is for garbage
	// and for what its logical clusters grow by. When it needs less than memoryFits, it takes more again.
	memoryFull = 75
	memoryFits = 70
	// measureTimeout bounds a look at etcd for a caller who has no time to wait.
	measureTimeout = 2 * time.Second
)

// ReporterConfig is what a Reporter needs. Of what is 0, the shard may hold any amount.
type ReporterConfig struct {
	Registry                       *storage.Registry
	Keys                           Keys
	MaxLogicalClusters, MaxObjects int64
	// MemoryLimit is that of the Go runtime (GOMEMLIMIT), in bytes; math.MaxInt64 without a limit.
	MemoryLimit int64
	// Healthy returns why the shard should get no traffic.
	Healthy func() error
}

// Reporter says how this shard is.
type Reporter struct {
	cfg   ReporterConfig
	meter meter

	mu         sync.Mutex
	beat       int64
	conditions conditionsv1alpha1.Conditions
	tight      bool // memory is short
}

// NewReporter returns a reporter that has measured nothing yet.
func NewReporter(cfg ReporterConfig) *Reporter {
	return &Reporter{cfg: cfg, meter: meter{keys: cfg.Keys, registry: cfg.Registry}}
}

// Report returns the next heartbeat of this shard, without Complete.
func (r *Reporter) Report(ctx context.Context) (shardingv1alpha1.ShardReportSpec, error) {
	spec, err := r.Current(ctx)
	if err != nil {
		return spec, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beat = max(r.beat+1, time.Now().UnixMilli()) // also after a restart, or in another replica
	spec.Beat = r.beat
	return spec, nil
}

// Current returns the same without a beat: how the shard is now.
func (r *Reporter) Current(ctx context.Context) (shardingv1alpha1.ShardReportSpec, error) {
	load, err := r.meter.measure(ctx)
	if err != nil {
		return shardingv1alpha1.ShardReportSpec{}, fmt.Errorf("measuring the load of this shard: %w", err)
	}
	return shardingv1alpha1.ShardReportSpec{Capacity: r.capacity(), Load: quantities(load), Conditions: r.judge(load)}, nil
}

// Full returns why the shard takes no new logical clusters now; nothing if it does.
func (r *Reporter) Full() string {
	return r.full(r.Load())
}

// Load returns how much the shard holds, to the best of what is known.
func (r *Reporter) Load() Load {
	ctx, cancel := context.WithTimeout(context.Background(), measureTimeout)
	defer cancel()
	load, err := r.meter.measure(ctx)
	if err != nil {
		klog.V(2).InfoS("The load of this shard could not be measured", "err", err)
	}
	return load
}

func (r *Reporter) judge(load Load) conditionsv1alpha1.Conditions {
	full := r.full(load)
	r.mu.Lock()
	defer r.mu.Unlock()
	to := &conditioned{r.conditions}
	if err := r.cfg.Healthy(); err != nil {
		conditionsv1alpha1.MarkFalse(to, conditionsv1alpha1.Ready, corev1alpha1.ReasonShardNotHealthy, conditionsv1alpha1.SeverityError, "%s", err.Error())
	} else {
		conditionsv1alpha1.MarkTrue(to, conditionsv1alpha1.Ready)
	}
	if full != "" {
		conditionsv1alpha1.MarkFalse(to, corev1alpha1.ShardSchedulable, corev1alpha1.ReasonShardFull, conditionsv1alpha1.SeverityWarning, "%s", full)
	} else {
		conditionsv1alpha1.MarkTrue(to, corev1alpha1.ShardSchedulable)
	}
	r.conditions = to.conditions
	return r.conditions
}

func (r *Reporter) full(load Load) string {
	switch {
	case r.cfg.MaxLogicalClusters > 0 && load.LogicalClusters >= r.cfg.MaxLogicalClusters:
		return fmt.Sprintf("The shard holds the %d logical clusters that it is to hold at most", r.cfg.MaxLogicalClusters)
	case r.cfg.MaxObjects > 0 && load.Objects >= r.cfg.MaxObjects:
		return fmt.Sprintf("The shard holds the %d objects that it is to hold at most", r.cfg.MaxObjects)
	case r.short(load.Memory):
		limit := bytes(r.cfg.MemoryLimit)
		return fmt.Sprintf("The shard needs more than %d percent of the memory that it may use, %s", memoryFits, limit.String())
	}
	return ""
}

// short tells whether memory is, and remembers it, so that the answer does not change with every collection of garbage.
func (r *Reporter) short(needed int64) bool {
	if r.cfg.MemoryLimit <= 0 || r.cfg.MemoryLimit == math.MaxInt64 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	bound := r.cfg.MemoryLimit / 100 * memoryFull
	if r.tight {
		bound = r.cfg.MemoryLimit / 100 * memoryFits
	}
	r.tight = needed > bound
	return r.tight
}

func (r *Reporter) capacity() corev1.ResourceList {
	capacity := corev1.ResourceList{}
	if r.cfg.MaxLogicalClusters > 0 {
		capacity[LogicalClusters] = *resource.NewQuantity(r.cfg.MaxLogicalClusters, resource.DecimalSI)
	}
	if r.cfg.MaxObjects > 0 {
		capacity[Objects] = *resource.NewQuantity(r.cfg.MaxObjects, resource.DecimalSI)
	}
	if r.cfg.MemoryLimit > 0 && r.cfg.MemoryLimit < math.MaxInt64 {
		capacity[Memory] = bytes(r.cfg.MemoryLimit)
	}
	return capacity
}

func quantities(load Load) corev1.ResourceList {
	return corev1.ResourceList{
		LogicalClusters: *resource.NewQuantity(load.LogicalClusters, resource.DecimalSI),
		Objects:         *resource.NewQuantity(load.Objects, resource.DecimalSI),
		Memory:          bytes(load.Memory),
	}
}

func bytes(count int64) resource.Quantity { return *resource.NewQuantity(count, resource.BinarySI) }

// conditioned is a list of conditions that can be set.
type conditioned struct{ conditions conditionsv1alpha1.Conditions }

func (c *conditioned) GetConditions() conditionsv1alpha1.Conditions   { return c.conditions }
func (c *conditioned) SetConditions(to conditionsv1alpha1.Conditions) { c.conditions = to }
