package heartbeat

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

func TestReporterFull(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  ReporterConfig
		load Load
		want string // part of the reason; empty if the shard accepts more
	}{
		"no limits": {ReporterConfig{MemoryLimit: math.MaxInt64}, Load{LogicalClusters: 1 << 40, Objects: 1 << 40, Memory: 1 << 40}, ""},
		"one below the limit of logical clusters":                                {ReporterConfig{MaxLogicalClusters: 10}, Load{LogicalClusters: 9}, ""},
		"at the limit of logical clusters":                                       {ReporterConfig{MaxLogicalClusters: 10}, Load{LogicalClusters: 10}, "10 logical clusters"},
		"at the limit of objects":                                                {ReporterConfig{MaxObjects: 7, MaxLogicalClusters: 10}, Load{Objects: 7}, "7 objects"},
		"at the hard limit of the Shard":                                         {ReporterConfig{Shard: limited("", "12")}, Load{LogicalClusters: 9, Workspaces: 12}, "12 workspaces"},
		"below the hard limit of the Shard, which takes the place of the flag's": {ReporterConfig{MaxLogicalClusters: 5, Shard: limited("", "12")}, Load{LogicalClusters: 9, Workspaces: 11}, ""},
		"at the soft limit of the Shard":                                         {ReporterConfig{Shard: limited("12", "")}, Load{Workspaces: 12}, ""},
		"a negative limit is none":                                               {ReporterConfig{Shard: limited("", "-1")}, Load{Workspaces: 12}, ""},
		"the Shard is not known":                                                 {ReporterConfig{Shard: func() *corev1alpha1.Shard { return nil }}, Load{Workspaces: 12}, ""},
		"live memory above the threshold":                                        {ReporterConfig{MemoryLimit: 1 << 30}, Load{Memory: 800 << 20}, "1Gi"},
		"live memory below the threshold":                                        {ReporterConfig{MemoryLimit: 1 << 30}, Load{Memory: 700 << 20}, ""},
		"storage below the watermark":                                            {ReporterConfig{}, Load{Space: etcdkeys.Space{Quota: 100 << 20, InUse: 79 << 20}}, ""},
		"storage at the watermark":                                               {ReporterConfig{}, Load{Space: etcdkeys.Space{Quota: 100 << 20, InUse: 80 << 20}}, "more than 75 percent of its quota of 100Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			got := NewReporter(tc.cfg).full(tc.load)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestIsMemoryShort(t *testing.T) {
	r := NewReporter(ReporterConfig{MemoryLimit: 100 << 20})
	for i, step := range []struct {
		needed int64
		short  bool
	}{{74 << 20, false}, {76 << 20, true}, {72 << 20, true}, {69 << 20, false}, {72 << 20, false}} {
		if got := r.isMemoryShort(step.needed); got != step.short {
			t.Errorf("step %d, %d bytes needed: got %v", i, step.needed, got)
		}
	}
}

func TestSetConditions(t *testing.T) {
	var healthErr error
	var refused string
	r := NewReporter(ReporterConfig{MaxLogicalClusters: 1, Healthy: func() error { return healthErr }, Refused: func() string { return refused }})
	first := &conditionList{r.setConditions(Load{})}
	if !conditionsv1alpha1.IsTrue(first, conditionsv1alpha1.Ready) || !conditionsv1alpha1.IsTrue(first, corev1alpha1.ShardSchedulable) {
		t.Errorf("healthy shard with capacity: conditions %+v", first.conditions)
	}
	if !conditionsv1alpha1.IsTrue(first, corev1alpha1.ShardPublished) {
		t.Errorf("shard without refused objects: conditions %+v", first.conditions)
	}
	refused = "one object"
	healthErr = errors.New("registered in another installation")
	second := &conditionList{r.setConditions(Load{LogicalClusters: 1})}
	if conditionsv1alpha1.GetMessage(second, conditionsv1alpha1.Ready) != healthErr.Error() || conditionsv1alpha1.GetReason(second, corev1alpha1.ShardSchedulable) != corev1alpha1.ReasonShardFull {
		t.Errorf("unhealthy and full shard: conditions %+v", second.conditions)
	}
	if conditionsv1alpha1.GetReason(second, corev1alpha1.ShardPublished) != corev1alpha1.ReasonObjectsRefused || conditionsv1alpha1.GetMessage(second, corev1alpha1.ShardPublished) != refused {
		t.Errorf("shard with a refused object: conditions %+v", second.conditions)
	}
	without := NewReporter(ReporterConfig{Healthy: func() error { return nil }})
	if published := conditionsv1alpha1.Get(&conditionList{without.setConditions(Load{})}, corev1alpha1.ShardPublished); published != nil {
		t.Errorf("shard without a cache server: %+v", published)
	}
}

func TestNoSpaceCondition(t *testing.T) {
	r := NewReporter(ReporterConfig{Healthy: func() error { return nil }})
	full := &conditionList{r.setConditions(Load{Space: etcdkeys.Space{NoSpace: true}})}
	if !strings.Contains(conditionsv1alpha1.GetMessage(full, conditionsv1alpha1.Ready), "NOSPACE") || !conditionsv1alpha1.IsFalse(full, corev1alpha1.ShardSchedulable) {
		t.Errorf("etcd refuses writes: conditions %+v", full.conditions)
	}
}

func TestRoundStorage(t *testing.T) {
	for inUse, want := range map[int64]int64{0: 0, 1999: 0, 2000: 2000, 99_999: 98_000} {
		if got := roundStorage(etcdkeys.Space{Quota: 100_000, InUse: inUse}); got != want {
			t.Errorf("%d: got %d, want %d", inUse, got, want)
		}
	}
}

func TestTracker(t *testing.T) {
	now := time.Unix(1000, 0)
	tracker := NewTracker(storage.NewRegistry(kcpcore.Locality))
	tracker.now = func() time.Time { return now }
	report := func(shard string, beat int64) *shardingv1alpha1.ShardReport {
		report := &shardingv1alpha1.ShardReport{Spec: shardingv1alpha1.ShardReportSpec{Beat: beat}}
		report.Name = shard
		return report
	}
	replace := func(reports ...*shardingv1alpha1.ShardReport) {
		t.Helper()
		if err := tracker.onReplace(t.Context(), reports, ""); err != nil {
			t.Fatal(err)
		}
	}
	update := func(r *shardingv1alpha1.ShardReport) {
		t.Helper()
		if err := tracker.onUpdate(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	replace(report("alpha", 1), report("beta", 1))
	now = now.Add(Timeout)
	if tracker.LiveReport("alpha") == nil || tracker.LiveReport("missing") != nil {
		t.Error("a shard is live until the timeout, and one that never reported is not")
	}
	now = now.Add(time.Second)
	update(report("alpha", 2))
	update(report("beta", 1)) // an unchanged beat does not count
	if tracker.LiveReport("alpha") == nil || tracker.LiveReport("beta") != nil {
		t.Error("a shard is live without a new beat")
	}
	if last, age := tracker.LastReport("beta"); last == nil || age != Timeout+time.Second {
		t.Errorf("last report of a shard that stopped reporting: %v, age %s", last, age)
	}
	replace(report("alpha", 2))
	if last, _ := tracker.LastReport("beta"); last != nil {
		t.Error("a report that is missing after a relist was kept")
	}
	if err := tracker.onDelete(t.Context(), report("alpha", 3)); err != nil {
		t.Fatal(err)
	}
	if len(tracker.shards) != 0 {
		t.Errorf("a deleted report was kept: %v", tracker.shards)
	}
}

func TestSetStatus(t *testing.T) {
	spec := &shardingv1alpha1.ShardReportSpec{Capacity: NewReporter(ReporterConfig{MaxObjects: 5}).capacity(Load{}), Load: quantities(Load{LogicalClusters: 129, Objects: 1299})}
	to := &conditionList{}
	conditionsv1alpha1.MarkTrue(to, conditionsv1alpha1.Ready)
	conditionsv1alpha1.MarkFalse(to, corev1alpha1.ShardSchedulable, corev1alpha1.ReasonShardFull, conditionsv1alpha1.SeverityWarning, "full")
	conditionsv1alpha1.MarkTrue(to, "Invented")
	spec.Conditions = to.conditions

	shard := &corev1alpha1.Shard{}
	setStatus(shard, nil, 0)
	if conditionsv1alpha1.GetReason(shard, conditionsv1alpha1.Ready) != corev1alpha1.ReasonShardNotReporting {
		t.Errorf("a shard that never reported: %+v", shard.Status)
	}
	setStatus(shard, spec, time.Second)
	if !conditionsv1alpha1.IsTrue(shard, conditionsv1alpha1.Ready) || !conditionsv1alpha1.IsFalse(shard, corev1alpha1.ShardSchedulable) || len(shard.Status.Conditions) != 3 || shard.Status.Capacity.Name(Objects, "").Value() != 5 {
		t.Errorf("a shard that reports: %+v", shard.Status)
	}
	if clusters, objects := shard.Status.Load.Name(LogicalClusters, ""), shard.Status.Load.Name(Objects, ""); clusters.Value() != 129 || objects.Value() != 1200 {
		t.Errorf("its load has %s logical clusters and %s objects", clusters, objects)
	}
	setStatus(shard, spec, Timeout+time.Second)
	before := shard.Status.DeepCopy()
	if !conditionsv1alpha1.IsUnknown(shard, conditionsv1alpha1.Ready) {
		t.Errorf("a shard that stopped reporting: %+v", shard.Status)
	}
	setStatus(shard, spec, 2*Timeout)
	if got := conditionsv1alpha1.Get(shard, conditionsv1alpha1.Ready); *got != *conditionsv1alpha1.Get(&conditionList{before.Conditions}, conditionsv1alpha1.Ready) {
		t.Errorf("a higher age of the report changes the condition to %+v", got)
	}
}
