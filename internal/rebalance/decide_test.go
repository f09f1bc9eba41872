package rebalance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func count(name corev1.ResourceName, n int) corev1.ResourceList {
	return corev1.ResourceList{name: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

// newShard returns a shard with workspaces.
func newShard(name string, load int, changes ...func(*corev1alpha1.Shard)) corev1alpha1.Shard {
	shard := corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	shard.Spec.ExternalURL = "https://kcp.example.com"
	shard.Status.Load = count(placementrules.LogicalClusters, load)
	conditionsv1alpha1.MarkTrue(&shard, conditionsv1alpha1.Ready)
	for _, change := range changes {
		change(&shard)
	}
	return shard
}

func closed(s *corev1alpha1.Shard) {
	s.Annotations = map[string]string{corev1alpha1.UnschedulableAnnotationKey: "drain"}
}

func limited(n int) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) { s.Status.Capacity = count(placementrules.LogicalClusters, n) }
}

// newMigration returns a migration of the rebalancer, which has ended some time ago if it has ended.
func newMigration(cluster, from, to string, phase migrationv1alpha1.LogicalClusterMigrationPhaseType, ago time.Duration) migrationv1alpha1.LogicalClusterMigration {
	m := migrationv1alpha1.LogicalClusterMigration{ObjectMeta: metav1.ObjectMeta{Name: "m-" + cluster, CreationTimestamp: metav1.NewTime(now.Add(-ago))}}
	m.Spec.LogicalCluster, m.Spec.DestinationShard, m.Status.OriginShard, m.Status.Phase = cluster, to, from, phase
	return m
}

func TestDecide(t *testing.T) {
	const (
		migrating = migrationv1alpha1.LogicalClusterMigrationPhaseMigrating
		completed = migrationv1alpha1.LogicalClusterMigrationPhaseCompleted
		failed    = migrationv1alpha1.LogicalClusterMigrationPhaseFailed
	)
	waiting := newMigration("x", "a", "b", migrating, 0)
	conditionsv1alpha1.MarkFalse(&waiting, migrationv1alpha1.DataCopied, migrationv1alpha1.ReasonWaitingForPlacement, conditionsv1alpha1.SeverityInfo, "b is closed")
	stuck := newMigration("x", "a", "b", migrating, 0)
	conditionsv1alpha1.MarkFalse(&stuck, migrationv1alpha1.Progressing, migrationv1alpha1.ReasonNoProgress, conditionsv1alpha1.SeverityWarning, "nothing has changed")
	for name, tc := range map[string]struct {
		shards []corev1alpha1.Shard
		on     string // names on shard a: "parent/child" is below parent, "pinned..." selects a
		own    []migrationv1alpha1.LogicalClusterMigration
		others []migrationv1alpha1.LogicalClusterMigration
		want   string
	}{
		"equal shards":                          {shards: []corev1alpha1.Shard{newShard("a", 5), newShard("b", 5)}},
		"below the threshold":                   {shards: []corev1alpha1.Shard{newShard("a", 12), newShard("b", 8)}, on: "x y"},
		"above it, down to it":                  {shards: []corev1alpha1.Shard{newShard("a", 14), newShard("b", 6)}, on: "z x y", want: "x a->b y a->b"},
		"a single shard":                        {shards: []corev1alpha1.Shard{newShard("a", 14)}, on: "x"},
		"a new shard":                           {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "x y z", want: "x a->b y a->b"},
		"one workspace alone stays":             {shards: []corev1alpha1.Shard{newShard("a", 1), newShard("b", 0)}, on: "x"},
		"a closed shard neither gives nor gets": {shards: []corev1alpha1.Shard{newShard("a", 14, closed), newShard("b", 6), newShard("c", 6)}, on: "x"},
		"nor does one of another region": {
			shards: []corev1alpha1.Shard{newShard("a", 14), newShard("b", 0, func(s *corev1alpha1.Shard) { s.Labels[corev1alpha1.RegionLabelKey] = "asia" })}, on: "x"},
		"nor one with another URL": {
			shards: []corev1alpha1.Shard{newShard("a", 14), newShard("b", 0, func(s *corev1alpha1.Shard) { s.Spec.ExternalURL = "https://x" })}, on: "x"},
		"nor one that is silent": {
			shards: []corev1alpha1.Shard{newShard("a", 14), newShard("b", 0, func(s *corev1alpha1.Shard) {
				conditionsv1alpha1.MarkUnknown(s, conditionsv1alpha1.Ready, "R", "silent")
			})}, on: "x"},
		"shares follow the capacities":                    {shards: []corev1alpha1.Shard{newShard("a", 10, limited(100)), newShard("b", 10, limited(100)), newShard("c", 5, limited(50))}},
		"spread over those below the share":               {shards: []corev1alpha1.Shard{newShard("a", 9), newShard("b", 0), newShard("c", 0)}, on: "u v w x y z", want: "u a->b v a->c w a->b x a->c y a->b z a->c"},
		"what selects the shard stays":                    {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "pinned x", want: "x a->b"},
		"what has workspaces below it on the shard stays": {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "top top/x", want: "top/x a->b"},
		"what cannot be read holds up no other":           {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "broken x", want: "x a->b; no connection"},
		"what belongs to the shard stays":                 {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "root system:x"},
		"what moves counts where it goes":                 {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "x y z", own: []migrationv1alpha1.LogicalClusterMigration{newMigration("x", "a", "b", migrating, 0)}, want: "y a->b; 1 running"},
		"what arrives is counted twice at most, and moves nothing on": {
			shards: []corev1alpha1.Shard{newShard("a", 6), newShard("b", 5), newShard("c", 4)}, on: "x y z",
			own: []migrationv1alpha1.LogicalClusterMigration{newMigration("x", "c", "a", migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup, 0)}, want: "1 running"},
		"what waits for a shard that was closed is given up": {
			shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0, closed), newShard("c", 4)}, own: []migrationv1alpha1.LogicalClusterMigration{waiting}, want: "1 running; m-x is given up"},
		"what makes no progress is reported": {
			shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "x y z", own: []migrationv1alpha1.LogicalClusterMigration{stuck},
			want: `y a->b; 1 running; 1 stuck; m-x to shard "b": nothing has changed`},
		"that of others, too":         {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "x y z", others: []migrationv1alpha1.LogicalClusterMigration{newMigration("x", "a", "b", migrating, 0)}, want: "y a->b"},
		"what was moved lately rests": {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "x y", own: []migrationv1alpha1.LogicalClusterMigration{newMigration("x", "b", "a", completed, time.Hour)}, want: "y a->b; 1 moved"},
		"so does what has failed":     {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "x y", own: []migrationv1alpha1.LogicalClusterMigration{newMigration("x", "a", "b", failed, time.Hour)}, want: `y a->b; m-x to shard "b": it was aborted`},
		"for a day":                   {shards: []corev1alpha1.Shard{newShard("a", 4), newShard("b", 0)}, on: "x", own: []migrationv1alpha1.LogicalClusterMigration{newMigration("x", "a", "b", failed, 25*time.Hour)}, want: "x a->b; m-x is forgotten"},
		"full shards get nothing": {shards: []corev1alpha1.Shard{newShard("a", 9), newShard("b", 1, func(s *corev1alpha1.Shard) {
			s.Spec.ResourceLimits = hard(1)
			s.Status.Used = count(placementrules.Workspaces, 1)
		})}, on: "x"},
		"logical clusters of the system do not count": {shards: []corev1alpha1.Shard{newShard("a", 100, used(160)), newShard("b", 99, used(159))}, on: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(Situation{
				Shards: tc.shards, Migrations: tc.own, Others: tc.others, Threshold: 20, Now: now,
				On:       func(shard string) (moves.Inventory, error) { return inventory(tc.on), nil },
				Selector: selectorByName,
			})
			if text := summary(got); text != tc.want {
				t.Errorf("got %q, want %q", text, tc.want)
			}
		})
	}
}

func TestMayBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		running, stuck, maxConcurrent int
		want                          bool
	}{
		"nothing runs":                              {0, 0, 1, true},
		"as many as may run":                        {1, 0, 1, false},
		"one that is stuck keeps nobody":            {1, 1, 1, true},
		"others run beside one that is stuck":       {2, 1, 1, false},
		"several that are stuck":                    {3, 3, 1, false},
		"none may begin, whatever is stuck already": {1, 1, 0, false},
	} {
		d := &Decision{Running: tc.running, Stuck: tc.stuck}
		if got := d.MayBegin(tc.maxConcurrent); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func hard(n int) *corev1alpha1.ShardResourceLimits {
	return &corev1alpha1.ShardResourceLimits{Hard: count(placementrules.Workspaces, n)}
}

func used(n int) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) { s.Status.Used = count(placementrules.Workspaces, n) }
}

func inventory(names string) (found moves.Inventory) {
	for _, path := range strings.Fields(names) {
		owner, name, child := strings.Cut(path, "/")
		if !child {
			owner, name = "root", path
		}
		found.LogicalClusters = append(found.LogicalClusters, moves.LogicalCluster{
			Name: logicalcluster.MustParseName(name), Path: path, Owner: &corev1alpha1.LogicalClusterOwner{Cluster: owner}, Phase: corev1alpha1.LogicalClusterPhaseReady,
		})
	}
	return found
}

func selectorByName(cluster moves.LogicalCluster) (labels.Selector, error) {
	switch name := cluster.Name.String(); {
	case strings.HasPrefix(name, "pinned"):
		return labels.SelectorFromSet(labels.Set{"name": "a"}), nil
	case name == "broken":
		return nil, errors.New("no connection")
	}
	return labels.Everything(), nil
}

// summary is a decision as text.
func summary(d Decision) string {
	var chosen, all []string
	for _, move := range d.Moves {
		chosen = append(chosen, fmt.Sprintf("%s %s->%s", move, move.From, move.To))
	}
	if len(chosen) > 0 {
		all = append(all, strings.Join(chosen, " "))
	}
	if d.Running > 0 {
		all = append(all, fmt.Sprintf("%d running", d.Running))
	}
	if d.Stuck > 0 {
		all = append(all, fmt.Sprintf("%d stuck", d.Stuck))
	}
	if d.Moved > 0 {
		all = append(all, fmt.Sprintf("%d moved", d.Moved))
	}
	for _, m := range d.GiveUp {
		all = append(all, m.Name+" is given up")
	}
	for _, m := range d.Expired {
		all = append(all, m.Name+" is forgotten")
	}
	return strings.Join(slices.Concat(all, d.Failed, d.Unread), "; ")
}

// TestNothingMovesBack does what is decided, from many distributions of workspaces, until nothing is to be done. No logical cluster is moved
// twice, though none rests, and the end is within the threshold.
func TestNothingMovesBack(t *testing.T) {
	for _, loads := range [][]int{{30, 0, 0}, {7, 5, 1}, {2, 1, 0}, {10, 9, 3}, {50, 49, 0}, {1, 1, 1}, {4, 0, 0}, {0, 0, 13}} {
		t.Run(fmt.Sprint(loads), func(t *testing.T) {
			on := map[string][]string{}
			total := 0
			for i, load := range loads {
				shard := string(rune('a' + i))
				for range load {
					on[shard] = append(on[shard], fmt.Sprintf("w%d", total))
					total++
				}
			}
			moved := map[string]bool{}
			for range total + 1 {
				var shards []corev1alpha1.Shard
				for i := range loads {
					shard := string(rune('a' + i))
					shards = append(shards, newShard(shard, len(on[shard])))
				}
				got := Decide(Situation{
					Shards: shards, Threshold: 20, Now: now, Selector: selectorByName,
					On: func(shard string) (moves.Inventory, error) { return inventory(strings.Join(on[shard], " ")), nil },
				})
				if len(got.Moves) == 0 {
					if len(got.Over) > 0 {
						t.Errorf("the end is %v", got.Over)
					}
					return
				}
				move := got.Moves[0]
				name := move.Name.String()
				if moved[name] {
					t.Fatalf("%s moves again, from %s to %s: %s", name, move.From, move.To, move.Reason)
				}
				moved[name] = true
				on[move.From] = slices.DeleteFunc(on[move.From], func(other string) bool { return other == name })
				on[move.To] = append(on[move.To], name)
			}
			t.Error("no end")
		})
	}
}

func TestIsOpen(t *testing.T) {
	night := Window{Start: "22:00", Duration: 4 * time.Hour}
	weekend := Window{Start: "00:00", Duration: 24 * time.Hour, Days: []string{"Sat", "Sun"}}
	for name, tc := range map[string]struct {
		windows []Window
		at      string
		want    bool
		err     string
	}{
		"without windows":                   {at: "Thu, 01 Jan 2026 12:00:00 UTC", want: true},
		"before":                            {[]Window{night}, "Thu, 01 Jan 2026 21:59:59 UTC", false, ""},
		"at the start":                      {[]Window{night}, "Thu, 01 Jan 2026 22:00:00 UTC", true, ""},
		"after midnight":                    {[]Window{night}, "Fri, 02 Jan 2026 01:59:59 UTC", true, ""},
		"at the end":                        {[]Window{night}, "Fri, 02 Jan 2026 02:00:00 UTC", false, ""},
		"on the day":                        {[]Window{night, weekend}, "Sat, 03 Jan 2026 12:00:00 UTC", true, ""},
		"on another day":                    {[]Window{weekend}, "Fri, 02 Jan 2026 12:00:00 UTC", false, ""},
		"after midnight of the day":         {[]Window{{Start: "22:00", Duration: 4 * time.Hour, Days: []string{"Fri"}}}, "Sat, 03 Jan 2026 01:00:00 UTC", true, ""},
		"in a time zone":                    {[]Window{{Start: "22:00", Duration: time.Hour, TimeZone: "Asia/Tokyo"}}, "Thu, 01 Jan 2026 13:30:00 UTC", true, ""},
		"not at that time elsewhere":        {[]Window{{Start: "22:00", Duration: time.Hour, TimeZone: "Asia/Tokyo"}}, "Thu, 01 Jan 2026 22:30:00 UTC", false, ""},
		"a time zone that does not exist":   {[]Window{night, {Start: "22:00", TimeZone: "Nowhere"}}, "Thu, 01 Jan 2026 12:00:00 UTC", false, `windows[1]: timeZone is "Nowhere"`},
		"a time of the day that is invalid": {[]Window{{Start: "25:00"}}, "Thu, 01 Jan 2026 12:00:00 UTC", false, `windows[0]: start is "25:00"`},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := time.Parse(time.RFC1123, tc.at)
			if err != nil {
				t.Fatal(err)
			}
			open, err := IsOpen(tc.windows, at)
			if open != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %t, %v", open, err)
			}
		})
	}
}
