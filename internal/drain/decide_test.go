package drain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
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

func closed(s *corev1alpha1.Shard) {
	s.Annotations = map[string]string{corev1alpha1.UnschedulableAnnotationKey: ""}
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
func clusters(names ...string) []moves.LogicalCluster {
	var all []moves.LogicalCluster
	for _, name := range names {
		all = append(all, moves.LogicalCluster{
			Name: logicalcluster.MustParseName(name), Owner: &corev1alpha1.LogicalClusterOwner{}, Phase: corev1alpha1.LogicalClusterPhaseReady,
		})
	}
	return all
}

func selectorByName(cluster moves.LogicalCluster) (labels.Selector, error) {
	switch name := cluster.Name.String(); {
	case strings.HasPrefix(name, "stay-"):
		return labels.SelectorFromSet(labels.Set{"name": "origin"}), nil
	case name == "invalid":
		return nil, &moves.RefusedError{Reason: "its selector is invalid"}
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
	for _, m := range d.GiveUp {
		text += "; give up " + m.Name
	}
	for _, m := range d.Discard {
		text += "; discard " + m.Name
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
	return strings.Join(slices.Concat([]string{text}, d.Unread, d.Waiting), "; ")
}

func TestDecide(t *testing.T) {
	const pinned = "no other shard has the labels that its spec.location.selector demands (name=origin)"
	deleting, initializing, home := clusters("deleting"), clusters("initializing"), clusters("home")
	deleting[0].Deleting, initializing[0].Phase, home[0].Owner = true, corev1alpha1.LogicalClusterPhaseInitializing, nil
	family := clusters("parent", "child", "z")
	family[0].Path, family[1].Path, family[2].Path, family[1].Owner.Cluster = "root:parent", "root:parent:child", "root:z", "parent"
	waiting := newMigration("one", "a", migrating, 1)
	conditionsv1alpha1.MarkFalse(&waiting, migrationv1alpha1.DataCopied, migrationv1alpha1.ReasonWaitingForDestination, conditionsv1alpha1.SeverityInfo, "shard a has not begun")
	sized := clusters("x", "y", "z")
	sized[0].Objects, sized[1].Objects, sized[2].Objects = moves.UnknownSize, 10, 9
	adopted := clusters("stay-parent", "child")
	adopted[1].Owner.Cluster = "stay-parent"
	withChildren := newMigration("parent", "b", migrating, 0)
	withChildren.Annotations = map[string]string{migrationv1alpha1.IncludeChildrenAnnotationKey: "true"}
	ofOthers := newMigration("one", "a", failed, 1)
	conditionsv1alpha1.MarkFalse(&ofOthers, migrationv1alpha1.OriginReady, migrationv1alpha1.ReasonLogicalClusterAlreadyMigrating, conditionsv1alpha1.SeverityError, "already migrating")
	ofOthers.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start)
	notPlaced := newMigration("one", "a", migrating, 1)
	conditionsv1alpha1.MarkFalse(&notPlaced, migrationv1alpha1.PlacementAllowed, migrationv1alpha1.ReasonShardNotSchedulable, conditionsv1alpha1.SeverityWarning, "shard a is closed")
	conditionsv1alpha1.MarkFalse(&notPlaced, migrationv1alpha1.DataCopied, migrationv1alpha1.ReasonWaitingForPlacement, conditionsv1alpha1.SeverityInfo, "nothing is copied")
	stuck := func(cluster, reason string) migrationv1alpha1.LogicalClusterMigration {
		migration := newMigration(cluster, "a", migrating, 1)
		conditionsv1alpha1.MarkFalse(&migration, migrationv1alpha1.DataCopied, reason, conditionsv1alpha1.SeverityWarning, "nothing is copied")
		conditionsv1alpha1.MarkFalse(&migration, migrationv1alpha1.Progressing, migrationv1alpha1.ReasonNoProgress, conditionsv1alpha1.SeverityWarning, "nothing has changed")
		return migration
	}
	for name, tc := range map[string]struct {
		clusters   []moves.LogicalCluster
		migrations []migrationv1alpha1.LogicalClusterMigration
		others     []migrationv1alpha1.LogicalClusterMigration
		shards     func([]corev1alpha1.Shard)
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
				"home stays: it has no Workspace, so that nobody could find it on another shard: delete it when its content is elsewhere; initializing stays: it is in phase Initializing, not Ready; " +
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
			want: "0 of 1 moved; one: migration m-one, which is not of this drain, moves it"},
		"one that waits says for what": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{waiting}, want: "0 of 1 moved, 1 moving; m-one: shard a has not begun"},
		"the smallest begin": {clusters: sized, want: "0 of 3 moved, 2 moving; start z to a (1); start y to b (1)"},
		"parents begin, and no child while its parent moves": {
			clusters: family, want: "0 of 3 moved, 2 moving; start parent to a (1); start z to b (1)"},
		"no child before its parent": {
			clusters: append(family[:2:2], clusters("other")...), migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("grandparent", "a", migrating, 1)},
			others: []migrationv1alpha1.LogicalClusterMigration{newMigration("parent", "b", migrating, 0)},
			want:   "0 of 4 moved, 2 moving; start other to a (1); root:parent: migration m-parent, which is not of this drain, moves it"},
		"a child whose parent stays moves": {
			clusters: adopted, want: "0 of 2 moved, 1 moving, 1 refused; start child to a (1); stay-parent stays: " + pinned},
		"what somebody moves with its parent is left alone": {
			clusters: family[1:2], others: []migrationv1alpha1.LogicalClusterMigration{withChildren},
			want: "0 of 1 moved; root:parent:child: migration m-parent, which is not of this drain, moves it"},
		"one that was moved by somebody else counts no attempt": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{ofOthers}, after: time.Hour, want: "0 of 1 moved, 1 moving; discard m-one; start one to a (1)"},
		"a migration to a shard that was closed goes elsewhere": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{notPlaced}, shards: func(s []corev1alpha1.Shard) { closed(&s[1]) },
			want: "0 of 1 moved, 1 moving; give up m-one; m-one: shard a is closed"},
		"it waits if no other shard can have it": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{notPlaced}, shards: func(s []corev1alpha1.Shard) { closed(&s[1]); closed(&s[2]) },
			want: "0 of 1 moved, 1 moving; m-one: shard a is closed"},
		"it waits if the shard accepts it by now": {
			clusters: clusters("one"), migrations: []migrationv1alpha1.LogicalClusterMigration{notPlaced}, want: "0 of 1 moved, 1 moving; m-one: shard a is closed"},
		"migrations that a shard does not begin go elsewhere, and no other follows them": {
			clusters:   clusters("one", "two", "three"),
			migrations: []migrationv1alpha1.LogicalClusterMigration{stuck("one", migrationv1alpha1.ReasonWaitingForDestination), stuck("two", migrationv1alpha1.ReasonWaitingForDestination)},
			want:       "0 of 3 moved, 3 moving; give up m-one; give up m-two; start three to b (1); m-one: nothing has changed; m-two: nothing has changed"},
		"one whose content cannot be copied leaves the shard open for others": {
			clusters: clusters("one", "two"), migrations: []migrationv1alpha1.LogicalClusterMigration{stuck("one", migrationv1alpha1.ReasonCopyFailed)}, shards: func(s []corev1alpha1.Shard) { closed(&s[2]) },
			want: "0 of 2 moved, 2 moving; start two to a (1); m-one: nothing has changed"},
		"no child while its parent moves": {
			clusters: family[:2], migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("parent", "a", migrating, 1)}, want: "0 of 2 moved, 1 moving"},
		"no parent while a child ends": {
			clusters: family[:2], migrations: []migrationv1alpha1.LogicalClusterMigration{newMigration("child", "a", cleanup, 1)}, want: "0 of 2 moved, 1 moving"},
		"a Workspace that cannot be read holds up no other": {clusters: clusters("broken", "one"), want: "0 of 2 moved, 1 moving; start one to a (1); no connection"},
	} {
		t.Run(name, func(t *testing.T) {
			origin := newShard("origin", closed)
			shards := []corev1alpha1.Shard{origin, newShard("a"), newShard("b")}
			if tc.shards != nil {
				tc.shards(shards)
			}
			got := Decide(Situation{
				Shard: &origin, Shards: shards, LogicalClusters: tc.clusters, Migrations: tc.migrations, Others: tc.others,
				Concurrency: 2, Selector: selectorByName, Examine: tc.examine, Now: start.Add(tc.after),
			})
			if text := summary(got); text != tc.want {
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
		d := Decide(s)
		if d.Total() != 20 || d.Moving > 3 {
			t.Fatalf("round %d: %s", round, summary(d))
		}
		if d.IsDone() {
			break
		}
		if round > 100 {
			t.Fatalf("no end: %s", summary(d))
		}
		s.Migrations = slices.DeleteFunc(s.Migrations, func(m migrationv1alpha1.LogicalClusterMigration) bool {
			return slices.ContainsFunc(d.Discard, func(old *migrationv1alpha1.LogicalClusterMigration) bool { return old.Name == m.Name })
		})
		for _, begun := range d.Start {
			s.Migrations = append(s.Migrations, newMigration(begun.Name.String(), begun.Destination, migrating, begun.Attempt))
		}
		for i := range s.Migrations { // the last one that runs ends; every fourth of them fails
			m := &s.Migrations[len(s.Migrations)-1-i]
			if !moves.IsRunning(m) {
				continue
			}
			if m.Status.Phase = completed; round%4 == 3 {
				m.Status.Phase = failed
			} else {
				s.LogicalClusters = slices.DeleteFunc(s.LogicalClusters, func(c moves.LogicalCluster) bool { return c.Name.String() == m.Spec.LogicalCluster })
			}
			break
		}
		s.Now = s.Now.Add(time.Hour)
	}
}
