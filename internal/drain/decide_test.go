package drain

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
	"github.com/atoll-dev/atoll/logicalcluster"
)

// newShard returns a shard that accepts workspaces.
func newShard(name string, changes ...func(*corev1alpha1.Shard)) corev1alpha1.Shard {
	shard := corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	shard.Spec.BaseURL, shard.Spec.ExternalURL = "https://"+name, "https://kcp.example.com"
	conditionsv1alpha1.MarkTrue(&shard, conditionsv1alpha1.Ready)
	conditionsv1alpha1.MarkTrue(&shard, corev1alpha1.ShardSchedulable)
	for _, change := range changes {
		change(&shard)
	}
	return shard
}

func count(name corev1.ResourceName, n int64) corev1.ResourceList {
	return corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)}
}

func load(n int64) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) {
		s.Status.Load, s.Status.Used = count(logicalClustersResource, n), count(workspacesResource, n+2)
	}
}

func capacity(n int64) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) { s.Status.Capacity = count(logicalClustersResource, n) }
}

func limits(soft, hard int64) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) {
		s.Spec.ResourceLimits = &corev1alpha1.ShardResourceLimits{Soft: count(workspacesResource, soft), Hard: count(workspacesResource, hard)}
	}
}

func closed(s *corev1alpha1.Shard) {
	s.Annotations = map[string]string{corev1alpha1.UnschedulableAnnotationKey: ""}
}

func silent(s *corev1alpha1.Shard) {
	conditionsv1alpha1.MarkUnknown(s, conditionsv1alpha1.Ready, corev1alpha1.ReasonShardNotReporting, "silent")
}

func ill(s *corev1alpha1.Shard) {
	conditionsv1alpha1.MarkFalse(s, conditionsv1alpha1.Ready, "Ill", conditionsv1alpha1.SeverityError, "no etcd")
}

func full(s *corev1alpha1.Shard) {
	conditionsv1alpha1.MarkFalse(s, corev1alpha1.ShardSchedulable, corev1alpha1.ReasonShardFull, conditionsv1alpha1.SeverityError, "no memory")
}

func in(region string) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) { s.Labels[corev1alpha1.RegionLabelKey] = region }
}

func at(url string) func(*corev1alpha1.Shard) {
	return func(s *corev1alpha1.Shard) { s.Spec.ExternalURL = url }
}

func TestChooseDestination(t *testing.T) {
	origin := newShard("origin", closed)
	for name, tc := range map[string]struct {
		shards   []corev1alpha1.Shard
		selector string
		onTheWay map[string]int64
		avoid    string
		want     string
		reason   string
	}{
		"the less loaded one":                  {shards: []corev1alpha1.Shard{newShard("a", load(5)), newShard("b", load(4))}, want: "b"},
		"the less used capacity":               {shards: []corev1alpha1.Shard{newShard("a", load(5), capacity(100)), newShard("b", load(4), capacity(10))}, want: "a"},
		"what is on the way counts":            {shards: []corev1alpha1.Shard{newShard("a", load(5)), newShard("b", load(4))}, onTheWay: map[string]int64{"b": 2}, want: "a"},
		"the first of equals":                  {shards: []corev1alpha1.Shard{newShard("b"), newShard("a")}, want: "a"},
		"the selector":                         {shards: []corev1alpha1.Shard{newShard("a"), newShard("b", load(9))}, selector: "name=b", want: "b"},
		"below the soft limit":                 {shards: []corev1alpha1.Shard{newShard("a", load(4), limits(5, 0)), newShard("b", load(9))}, want: "b"},
		"only soft limits are reached":         {shards: []corev1alpha1.Shard{newShard("a", load(4), limits(5, 0))}, want: "a"},
		"a limit takes the place of the flag":  {shards: []corev1alpha1.Shard{newShard("a", load(9), capacity(9), limits(0, 20))}, want: "a"},
		"not where it has just failed":         {shards: []corev1alpha1.Shard{newShard("a"), newShard("b", load(9))}, avoid: "a", want: "b"},
		"where it has failed, without another": {shards: []corev1alpha1.Shard{newShard("a")}, avoid: "a", want: "a"},
		"the same external URL with a slash":   {shards: []corev1alpha1.Shard{newShard("a", at("https://kcp.example.com/"))}, want: "a"},
		"no other shard":                       {reason: "there is no other shard"},
		"never the origin":                     {selector: "name=origin", reason: "no other shard has the labels that its spec.location.selector demands (name=origin)"},
		"closed":                               {shards: []corev1alpha1.Shard{newShard("a", closed)}, reason: `no shard can have it: shard "a" is closed by its annotation experimental.core.kcp.io/unschedulable`},
		"silent":                               {shards: []corev1alpha1.Shard{newShard("a", silent)}, reason: `no shard can have it: shard "a" has not reported lately`},
		"never reported":                       {shards: []corev1alpha1.Shard{newShard("a", func(s *corev1alpha1.Shard) { s.Status.Conditions = nil })}, reason: `no shard can have it: shard "a" has not reported lately`},
		"ill":                                  {shards: []corev1alpha1.Shard{newShard("a", ill)}, reason: `no shard can have it: shard "a" is not healthy: no etcd`},
		"unschedulable":                        {shards: []corev1alpha1.Shard{newShard("a", full)}, reason: `no shard can have it: shard "a" accepts no new workspaces: no memory`},
		"deleted":                              {shards: []corev1alpha1.Shard{newShard("a", func(s *corev1alpha1.Shard) { s.DeletionTimestamp = &metav1.Time{} })}, reason: `no shard can have it: shard "a" is being deleted`},
		"hard limit":                           {shards: []corev1alpha1.Shard{newShard("a", load(10), limits(0, 12))}, reason: `no shard can have it: shard "a" is full: it has 12 of 12 workspaces`},
		"hard limit, with what is on the way":  {shards: []corev1alpha1.Shard{newShard("a", load(8), limits(0, 12))}, onTheWay: map[string]int64{"a": 2}, reason: `no shard can have it: shard "a" is full: it has 12 of 12 workspaces`},
		"capacity":                             {shards: []corev1alpha1.Shard{newShard("a", load(3), capacity(3))}, reason: `no shard can have it: shard "a" is full: it has 3 of 3 logical clusters`},
		"another region":                       {shards: []corev1alpha1.Shard{newShard("a", in("asia"))}, reason: `no shard can have it: shard "a" is in the region "asia", not in ""`},
		"another external URL":                 {shards: []corev1alpha1.Shard{newShard("a", at("https://x"))}, reason: `no shard can have it: shard "a" has the external URL "https://x", so that the URL of the workspace would change`},
		"all reasons": {shards: []corev1alpha1.Shard{newShard("b", ill), newShard("a", closed)},
			reason: `no shard can have it: shard "a" is closed by its annotation experimental.core.kcp.io/unschedulable; shard "b" is not healthy: no etcd`},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(tc.selector)
			if err != nil {
				t.Fatal(err)
			}
			got, reason := chooseDestination(&origin, append(tc.shards, origin), selector, tc.onTheWay, tc.avoid)
			if got != tc.want || reason != tc.reason {
				t.Errorf("got %q, %q", got, reason)
			}
		})
	}
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newMigration returns a migration of this drain, whose status is from start.
func newMigration(cluster, to string, phase migrationv1alpha1.LogicalClusterMigrationPhaseType, attempt int) migrationv1alpha1.LogicalClusterMigration {
	migration := migrationv1alpha1.LogicalClusterMigration{ObjectMeta: metav1.ObjectMeta{Name: "m-" + cluster, CreationTimestamp: metav1.NewTime(start.Add(-time.Hour))}}
	if attempt > 0 {
		migration.Annotations = map[string]string{attemptAnnotation: fmt.Sprint(attempt)}
	}
	migration.Spec.LogicalCluster, migration.Spec.DestinationShard, migration.Status.Phase = cluster, to, phase
	if phase == failed {
		migration.Status.Conditions = conditionsv1alpha1.Conditions{{
			Type: migrationv1alpha1.OriginReady, Status: corev1.ConditionFalse, Reason: "X", Message: "too large", LastTransitionTime: metav1.NewTime(start),
		}}
	}
	return migration
}

const (
	migrating = migrationv1alpha1.LogicalClusterMigrationPhaseMigrating
	cleanup   = migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup
	completed = migrationv1alpha1.LogicalClusterMigrationPhaseCompleted
	failed    = migrationv1alpha1.LogicalClusterMigrationPhaseFailed
)

// clusters returns logical clusters that can be moved. Those of the names "stay-..." select the origin only.
func clusters(names ...string) []LogicalCluster {
	var all []LogicalCluster
	for _, name := range names {
		all = append(all, LogicalCluster{
			Name: logicalcluster.MustParseName(name), Owner: &corev1alpha1.LogicalClusterOwner{}, Phase: corev1alpha1.LogicalClusterPhaseReady,
		})
	}
	return all
}

func selectorByName(cluster LogicalCluster) (labels.Selector, error) {
	switch name := cluster.Name.String(); {
	case strings.HasPrefix(name, "stay-"):
		return labels.SelectorFromSet(labels.Set{"name": "origin"}), nil
	case name == "invalid":
		return nil, &RefusedError{"its selector is invalid"}
	case name == "broken":
		return nil, errors.New("no connection")
	}
	return labels.Everything(), nil
}

// summary is a decision as text.
func summary(d Decision) string {
	text := d.Progress.String()
	if d.System > 0 {
		text += fmt.Sprintf(", %d of the system", d.System)
	}
	for _, name := range d.Discard {
		text += "; discard " + name
	}
	for _, s := range d.Start {
		text += fmt.Sprintf("; start %s to %s (%d)", s.Name, s.Destination, s.Attempt)
	}
	for _, r := range d.Refused {
		text += fmt.Sprintf("; %s stays: %s", r.LogicalCluster, r.Reason)
	}
	for _, f := range d.Failed {
		text += fmt.Sprintf("; %s after %s: %s", f.LogicalCluster, f.RetryAt.Sub(start), f.Reason)
	}
	return strings.Join(append([]string{text}, d.Waiting...), "; ")
}

func TestDecide(t *testing.T) {
	const pinned = "no other shard has the labels that its spec.location.selector demands (name=origin)"
	deleting, initializing, home := clusters("deleting"), clusters("initializing"), clusters("home")
	deleting[0].Deleting, initializing[0].Phase, home[0].Owner = true, corev1alpha1.LogicalClusterPhaseInitializing, nil
	family := clusters("parent", "child", "z")
	family[0].Path, family[1].Path, family[2].Path, family[1].Owner.Cluster = "root:parent", "root:parent:child", "root:z", "parent"
	waiting := newMigration("one", "a", migrating, 1)
	conditionsv1alpha1.MarkFalse(&waiting, migrationv1alpha1.DataCopied, migrationv1alpha1.ReasonWaitingForDestination, conditionsv1alpha1.SeverityInfo, "shard a has not begun")
	for name, tc := range map[string]struct {
		clusters   []LogicalCluster
		migrations []migrationv1alpha1.LogicalClusterMigration
		others     []migrationv1alpha1.LogicalClusterMigration
		examine    bool
		after      time.Duration
		want       string
	}{
		"nothing is there":                             {want: "0 of 0 moved"},
		"what belongs to the shard stays":              {clusters: clusters("root", "system:admin", "system:shard"), want: "0 of 0 moved, 3 of the system"},
		"as many as may run begin, spread over shards": {clusters: clusters("three", "one", "two"), want: "0 of 3 moved, 2 moving; start one to a (1); start three to b (1)"},
		"one more when one has ended": {
			clusters: clusters("one", "two", "three"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("one", "a", migrating, 1), newMigration("zero", "b", completed, 1)},
			want: "1 of 4 moved, 2 moving; start three to b (1)"},
		"none while as many run": {
			clusters: clusters("one", "two", "three", "stay-a"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("one", "a", migrating, 1), newMigration("two", "b", migrating, 1)},
			want: "0 of 4 moved, 2 moving"},
		"those that have left count until their migrations end": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("two", "a", cleanup, 1), newMigration("three", "b", cleanup, 1)},
			want: "0 of 3 moved, 2 moving"},
		"all are examined on request": {
			clusters: clusters("one", "two", "three", "stay-a"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("one", "a", migrating, 1), newMigration("two", "b", migrating, 1)},
			examine: true, want: "0 of 4 moved, 2 moving, 1 refused; stay-a stays: " + pinned},
		"refused ones do not hold up others": {
			clusters: append(clusters("a-one", "stay-b", "invalid", "z"), append(append(deleting, initializing...), home...)...),
			want: "0 of 7 moved, 2 moving, 5 refused; start a-one to a (1); start z to b (1); deleting stays: it is being deleted; " +
				"home stays: it has no Workspace, so that nobody could find it on another shard; initializing stays: it is in phase Initializing, not Ready; " +
				"invalid stays: its selector is invalid; stay-b stays: " + pinned},
		"a failed one waits": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("one", "a", failed, 0)}, after: 29 * time.Second,
			want: `0 of 1 moved, 1 failed; one after 30s: the move to shard "a" has failed: too large`},
		"it is tried again, elsewhere": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("one", "a", failed, 1)}, after: 30 * time.Second,
			want: "0 of 1 moved, 1 moving; discard m-one; start one to b (2)"},
		"the second failure waits longer": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("one", "a", failed, 2)}, after: 59 * time.Second,
			want: `0 of 1 moved, 1 failed; one after 1m0s: the move to shard "a" has failed: too large`},
		"the wait has a limit": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("one", "a", failed, 1000)}, after: 29 * time.Minute,
			want: `0 of 1 moved, 1 failed; one after 30m0s: the move to shard "a" has failed: too large`},
		"a failed one is refused if nothing fits any more": {
			clusters: clusters("stay-a"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("stay-a", "a", failed, 1)}, after: time.Hour,
			want: "0 of 1 moved, 1 refused; stay-a stays: " + pinned},
		"one that has come back moves again": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("one", "a", completed, 1)},
			want: "0 of 1 moved, 1 moving; discard m-one; start one to a (1)"},
		"migrations of others are left alone": {
			clusters: clusters("one"), others: []migrationv1alpha1.LogicalClusterMigration{newMigration("one", "a", migrating, 0)},
			want: "0 of 1 moved; one: migration m-one in root, which is not of this drain, moves it"},
		"one that waits says for what": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{waiting}, want: "0 of 1 moved, 1 moving; m-one: shard a has not begun"},
		"the deepest begin, and no parent while a child moves": {
			clusters: family, want: "0 of 3 moved, 2 moving; start child to a (1); start z to b (1)"},
		"no child while its parent moves": {
			clusters: family[:2], migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("parent", "a", migrating, 1)}, want: "0 of 2 moved, 1 moving"},
		"no parent while a child ends": {
			clusters: family[:2], migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("child", "a", cleanup, 1)}, want: "0 of 2 moved, 1 moving"},
		"an error is no refusal": {clusters: clusters("broken"), want: "no connection"},
	} {
		t.Run(name, func(t *testing.T) {
			origin := newShard("origin", closed)
			got, err := Decide(Situation{
				Shard: &origin, Shards: []corev1alpha1.Shard{origin, newShard("a"), newShard("b")}, LogicalClusters: tc.clusters, Migrations: tc.migrations, Others: tc.others,
				Concurrency: 2, Selector: selectorByName, Examine: tc.examine, Now: start.Add(tc.after),
			})
			text := summary(got)
			if err != nil {
				text = err.Error()
			}
			if text != tc.want {
				t.Errorf("got  %s\nwant %s", text, tc.want)
			}
		})
	}
}

// TestDecideUntilDone repeats decisions, with migrations that end in any order, until nothing is left.
func TestDecideUntilDone(t *testing.T) {
	origin := newShard("origin", closed)
	s := Situation{Shard: &origin, Shards: []corev1alpha1.Shard{origin, newShard("a"), newShard("b")}, Concurrency: 3, Selector: selectorByName, Now: start}
	for i := range 20 {
		s.LogicalClusters = append(s.LogicalClusters, clusters(fmt.Sprintf("cluster-%d", i))...)
	}
	for round := 0; ; round++ {
		d, err := Decide(s)
		if err != nil || d.Total() != 20 || d.Moving > 3 {
			t.Fatalf("round %d: %v, %s", round, err, summary(d))
		}
		if d.IsDone() {
			break
		}
		if round > 100 {
			t.Fatalf("no end: %s", summary(d))
		}
		s.Migrations = slices.DeleteFunc(s.Migrations, func(m migrationv1alpha1.LogicalClusterMigration) bool { return slices.Contains(d.Discard, m.Name) })
		for _, begun := range d.Start {
			s.Migrations = append(s.Migrations, newMigration(begun.Name.String(), begun.Destination, migrating, begun.Attempt))
		}
		for i := range s.Migrations { // the last one that runs ends; every fourth of them fails
			m := &s.Migrations[len(s.Migrations)-1-i]
			if !isRunning(m) {
				continue
			}
			if m.Status.Phase = completed; round%4 == 3 {
				m.Status.Phase = failed
			} else {
				s.LogicalClusters = slices.DeleteFunc(s.LogicalClusters, func(c LogicalCluster) bool { return c.Name.String() == m.Spec.LogicalCluster })
			}
			break
		}
		s.Now = s.Now.Add(time.Hour)
	}
}
