package scheduling

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/sharding/heartbeat"
)

// fakeHeartbeats are the reports of other shards; those in stale have a last report that is too old.
type fakeHeartbeats struct {
	reports map[string]shardingv1alpha1.ShardReportSpec
	stale   map[string]bool
}

func (f fakeHeartbeats) LastReport(shard string) (*shardingv1alpha1.ShardReport, time.Duration) {
	spec, ok := f.reports[shard]
	if !ok {
		return nil, 0
	}
	return &shardingv1alpha1.ShardReport{ObjectMeta: metav1.ObjectMeta{Name: shard}, Spec: spec}, time.Second
}

func (f fakeHeartbeats) LiveReport(shard string) *shardingv1alpha1.ShardReport {
	if f.stale[shard] {
		return nil
	}
	report, _ := f.LastReport(shard)
	return report
}

func reportWithLoad(load, capacity int64) shardingv1alpha1.ShardReportSpec {
	spec := shardingv1alpha1.ShardReportSpec{Load: corev1.ResourceList{heartbeat.LogicalClusters: *resource.NewQuantity(load, resource.DecimalSI)}}
	if capacity > 0 {
		spec.Capacity = corev1.ResourceList{heartbeat.LogicalClusters: *resource.NewQuantity(capacity, resource.DecimalSI)}
	}
	return spec
}

func reportWithCondition(condition conditionsv1alpha1.Type, message string) shardingv1alpha1.ShardReportSpec {
	spec := reportWithLoad(0, 0)
	spec.Conditions = conditionsv1alpha1.Conditions{{Type: condition, Status: corev1.ConditionFalse, Message: message}}
	return spec
}

func newShard(name string, annotations ...string) *corev1alpha1.Shard {
	shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	for _, annotation := range annotations {
		shard.Annotations = map[string]string{annotation: ""}
	}
	return shard
}

func withUsed(spec shardingv1alpha1.ShardReportSpec, workspaces int64) shardingv1alpha1.ShardReportSpec {
	spec.Used = corev1.ResourceList{heartbeat.Workspaces: *resource.NewQuantity(workspaces, resource.DecimalSI)}
	return spec
}

// withLimits returns a Shard with limits of workspaces; 0 is none.
func withLimits(name string, soft, hard int64) *corev1alpha1.Shard {
	shard := newShard(name)
	shard.Spec.ResourceLimits = &corev1alpha1.ShardResourceLimits{
		Soft: corev1.ResourceList{heartbeat.Workspaces: *resource.NewQuantity(soft, resource.DecimalSI)},
		Hard: corev1.ResourceList{heartbeat.Workspaces: *resource.NewQuantity(hard, resource.DecimalSI)},
	}
	return shard
}

func TestChoose(t *testing.T) {
	three := []*corev1alpha1.Shard{newShard("own"), newShard("alpha"), newShard("beta")}
	for name, tc := range map[string]struct {
		shards   []*corev1alpha1.Shard
		selector string
		own      shardingv1alpha1.ShardReportSpec
		others   map[string]shardingv1alpha1.ShardReportSpec
		stale    string
		excluded string
		want     string
		wantErr  string
	}{
		"only this shard":                       {shards: three[:1], own: reportWithLoad(5, 0), want: "own"},
		"less loaded one of two":                {shards: three[:2], own: reportWithLoad(5, 0), others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithLoad(4, 0)}, want: "alpha"},
		"less used capacity of two":             {shards: three[:2], own: reportWithLoad(5, 100), others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithLoad(4, 10)}, want: "own"},
		"selector":                              {shards: three, selector: "name=alpha", others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithLoad(100, 0)}, want: "alpha"},
		"shards that never reported":            {shards: three, own: reportWithLoad(100, 0), want: "own"},
		"shard with an old report":              {shards: three[:2], own: reportWithLoad(100, 0), others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithLoad(0, 0)}, stale: "alpha", want: "own"},
		"full shard":                            {shards: three[:2], own: reportWithLoad(100, 0), others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithLoad(10, 10)}, want: "own"},
		"unhealthy shard":                       {shards: three[:2], own: reportWithLoad(100, 0), others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithCondition(conditionsv1alpha1.Ready, "ill")}, want: "own"},
		"unschedulable shard by its report":     {shards: three[:2], own: reportWithLoad(100, 0), others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithCondition(corev1alpha1.ShardSchedulable, "no memory")}, want: "own"},
		"unschedulable shard by its annotation": {shards: []*corev1alpha1.Shard{newShard("own", corev1alpha1.UnschedulableAnnotationKey), three[1]}, others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithLoad(100, 0)}, want: "alpha"},
		"shard at its hard limit":               {shards: []*corev1alpha1.Shard{three[0], withLimits("alpha", 0, 12)}, own: reportWithLoad(100, 0), others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": withUsed(reportWithLoad(10, 0), 12)}, want: "own"},
		"shard at its soft limit":               {shards: []*corev1alpha1.Shard{three[0], withLimits("alpha", 12, 20)}, own: reportWithLoad(100, 0), others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": withUsed(reportWithLoad(10, 0), 12)}, want: "own"},
		"only shards at their soft limits":      {shards: []*corev1alpha1.Shard{withLimits("alpha", 12, 20)}, others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": withUsed(reportWithLoad(10, 0), 12)}, want: "alpha"},
		"the selector is before the soft limit": {shards: []*corev1alpha1.Shard{three[0], withLimits("alpha", 12, 20)}, selector: "name=alpha", others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": withUsed(reportWithLoad(10, 0), 12)}, want: "alpha"},
		"a limit of the Shard instead of flags": {shards: []*corev1alpha1.Shard{withLimits("alpha", 0, 20)}, others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": withUsed(reportWithLoad(10, 10), 12)}, want: "alpha"},
		"a negative limit is none":              {shards: []*corev1alpha1.Shard{withLimits("alpha", 0, -1)}, others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": withUsed(reportWithLoad(10, 0), 12)}, want: "alpha"},
		"reason: hard limit":                    {shards: []*corev1alpha1.Shard{withLimits("alpha", 0, 12)}, others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": withUsed(reportWithLoad(10, 0), 12)}, wantErr: `No available shards to schedule the workspace: shard "alpha" is full: it has 12 of 12 workspaces`},
		"excluded shard":                        {shards: three[:2], own: reportWithLoad(100, 0), others: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithLoad(0, 0)}, excluded: "alpha", want: "own"},
		"no matching shard":                     {shards: three, selector: "name=x", wantErr: "No available shards to schedule the workspace"},
		"reason: annotation":                    {shards: []*corev1alpha1.Shard{newShard("own", corev1alpha1.UnschedulableAnnotationKey)}, wantErr: `No available shards to schedule the workspace: shard "own" is closed by its annotation experimental.core.kcp.io/unschedulable`},
		"reasons of all matching shards, sorted": {
			shards: three, own: reportWithCondition(corev1alpha1.ShardSchedulable, "no memory"), others: map[string]shardingv1alpha1.ShardReportSpec{"beta": reportWithLoad(3, 3)},
			wantErr: `No available shards to schedule the workspace: shard "alpha" has not reported lately; shard "beta" is full: it has 3 of 3 logical clusters; shard "own" accepts no new workspaces: no memory`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(tc.selector)
			if err != nil {
				t.Fatal(err)
			}
			s := New("own", fakeHeartbeats{tc.others, map[string]bool{tc.stale: true}})
			got, err := s.Choose(tc.shards, selector, tc.own, tc.excluded)
			var none *NoShardError
			if tc.want == "" {
				if !errors.As(err, &none) || err.Error() != tc.wantErr {
					t.Errorf("got %v, %v; want %s", got, err, tc.wantErr)
				}
				return
			}
			if err != nil || got.Name != tc.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestPendingClusters(t *testing.T) {
	reports := fakeHeartbeats{reports: map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithLoad(0, 0), "beta": reportWithLoad(0, 0)}}
	s := New("own", reports)
	all := []*corev1alpha1.Shard{newShard("own"), newShard("alpha"), newShard("beta")}
	on := map[string]int{}
	for range 300 {
		shard, err := s.Choose(all, labels.Everything(), reportWithLoad(0, 0), "")
		if err != nil {
			t.Fatal(err)
		}
		on[shard.Name]++
	}
	for _, shard := range all {
		if on[shard.Name] < 90 || on[shard.Name] > 110 {
			t.Errorf("distribution of 300 workspaces: %v", on)
		}
	}
	// Logical clusters in a report are not pending any more.
	counted := reportWithLoad(100, 0)
	counted.Beat = 1
	reports.reports["alpha"] = counted
	if got := s.pending("alpha", counted); got != 0 {
		t.Errorf("%d are still pending", got)
	}
	// Those that are cancelled are not, however many.
	counted = reportWithLoad(0, 0)
	before := s.pending("beta", counted)
	s.Cancel("beta")
	if got := s.pending("beta", counted); got != before-1 {
		t.Errorf("%d of %d are pending after one was cancelled", got, before)
	}
	for range before + 1 {
		s.Cancel("beta")
	}
	s.Cancel("unknown")
	if got := s.pending("beta", counted); got != 0 || s.entries["unknown"] != nil {
		t.Errorf("%d are pending after all were cancelled; an unknown shard: %+v", got, s.entries["unknown"])
	}
}

func TestObserveReport(t *testing.T) {
	s := New("own", fakeHeartbeats{})
	observe := func(spec shardingv1alpha1.ShardReportSpec) bool {
		return s.ObserveReport(&shardingv1alpha1.ShardReport{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}, Spec: spec})
	}
	var got []string
	for _, spec := range []shardingv1alpha1.ShardReportSpec{reportWithLoad(0, 1), reportWithLoad(0, 1), reportWithLoad(1, 1), reportWithLoad(0, 1)} {
		if observe(spec) {
			got = append(got, "opens")
		} else {
			got = append(got, "-")
		}
	}
	if strings.Join(got, " ") != "opens - - opens" {
		t.Errorf("got %v", got)
	}
	s = New("own", fakeHeartbeats{map[string]shardingv1alpha1.ShardReportSpec{"alpha": reportWithLoad(0, 0)}, map[string]bool{"alpha": true}})
	observe(reportWithLoad(0, 0))
	if _, err := s.Choose([]*corev1alpha1.Shard{newShard("alpha")}, labels.Everything(), reportWithLoad(0, 0), ""); err == nil {
		t.Error("a shard with an old report was chosen")
	}
	if !observe(reportWithLoad(0, 0)) || observe(reportWithLoad(0, 0)) {
		t.Error("a shard that was skipped because of its old report does not open with its next report, or more than once")
	}
	s.Remove("alpha")
	if len(s.entries) != 0 {
		t.Errorf("a removed shard is still tracked: %v", s.entries)
	}
}

func TestIsLost(t *testing.T) {
	s := New("own", fakeHeartbeats{map[string]shardingv1alpha1.ShardReportSpec{"alive": reportWithLoad(0, 0), "stale": reportWithLoad(0, 0)}, map[string]bool{"stale": true}})
	for name, want := range map[string]bool{"own": false, "alive": false, "stale": true, "never reported": false} {
		if got := s.IsLost(name); got != want {
			t.Errorf("shard %s: lost %t", name, got)
		}
	}
	s.since = time.Now().Add(-2 * initialReportTimeout)
	if !s.IsLost("never reported") {
		t.Error("a shard that never reports is not lost")
	}
}
