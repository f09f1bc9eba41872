package migration

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// newMigration returns a migration of the logical cluster "moving" from alpha to beta that includes children.
func newMigration(phase migrationv1alpha1.LogicalClusterMigrationPhaseType, annotations ...string) *migrationv1alpha1.LogicalClusterMigration {
	m := &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "move", UID: "m", Annotations: map[string]string{migrationv1alpha1.IncludeChildrenAnnotationKey: "true"}},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: "moving", DestinationShard: "beta"},
		Status:     migrationv1alpha1.LogicalClusterMigrationStatus{Phase: phase},
	}
	if phase != migrationv1alpha1.LogicalClusterMigrationPhasePreparing {
		m.Status.OriginShard = "alpha"
	}
	for _, last := range annotations {
		m.Annotations[movingChildAnnotation] = last
	}
	return m
}

func newChild(cluster string, phase migrationv1alpha1.LogicalClusterMigrationPhaseType) *migrationv1alpha1.LogicalClusterMigration {
	child := newMigration(phase)
	child.Name, child.Spec.LogicalCluster = "move-"+cluster, cluster
	conditionsv1alpha1.MarkFalse(child, migrationv1alpha1.DataCopied, "R", conditionsv1alpha1.SeverityWarning, "the reason")
	return child
}

func TestChildren(t *testing.T) {
	const (
		finalize  = migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize
		completed = migrationv1alpha1.LogicalClusterMigrationPhaseCompleted
		failed    = migrationv1alpha1.LogicalClusterMigrationPhaseFailed
		migrating = migrationv1alpha1.LogicalClusterMigrationPhaseMigrating
	)
	next := func(cluster string) *shardingv1alpha1.MigrationChildren {
		return &shardingv1alpha1.MigrationChildren{Next: cluster, Workspace: "root:" + cluster}
	}
	deleted := newMigration(finalize)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for name, tc := range map[string]struct {
		migration *migrationv1alpha1.LogicalClusterMigration
		next      *shardingv1alpha1.MigrationChildren
		children  []*migrationv1alpha1.LogicalClusterMigration
		phase     migrationv1alpha1.LogicalClusterMigrationPhaseType
		child     string
		message   string
	}{
		"the destination has not looked yet":     {migration: newMigration(finalize), phase: finalize},
		"none":                                   {migration: newMigration(finalize), next: next(""), phase: completed},
		"the first":                              {migration: newMigration(finalize), next: next("one"), phase: finalize, child: "move-one", message: "0 below were moved; root:one is next"},
		"one at a time":                          {migration: newMigration(finalize, "one"), next: next("one"), children: []*migrationv1alpha1.LogicalClusterMigration{newChild("one", migrating)}, phase: finalize, message: "in phase Migrating: the reason"},
		"the report is old":                      {migration: newMigration(finalize, "one"), next: next("one"), children: []*migrationv1alpha1.LogicalClusterMigration{newChild("one", completed)}, phase: finalize},
		"the second":                             {migration: newMigration(finalize, "one"), next: next("two"), children: []*migrationv1alpha1.LogicalClusterMigration{newChild("one", completed)}, phase: finalize, child: "move-two", message: "1 below were moved; root:two is next"},
		"all":                                    {migration: newMigration(finalize, "two"), next: next(""), children: []*migrationv1alpha1.LogicalClusterMigration{newChild("one", completed), newChild("two", completed)}, phase: completed},
		"a failure stops the rest":               {migration: newMigration(finalize, "two"), next: next("two"), children: []*migrationv1alpha1.LogicalClusterMigration{newChild("one", completed), newChild("two", failed)}, phase: failed, message: `migration "move-two" of logical cluster "two" failed: the reason; the logical cluster and 1 below were moved`},
		"a deleted one stops the rest":           {migration: newMigration(finalize, "one"), next: next("one"), phase: failed, message: "the migration of root:one was deleted"},
		"a record of a completed one is deleted": {migration: newMigration(finalize, "one"), next: next("two"), phase: finalize, child: "move-two"},
		"the migration is deleted":               {migration: deleted, next: next("one"), phase: failed, message: "the migration was deleted"},
		"only those below, after a failure":      {migration: newMigration(migrationv1alpha1.LogicalClusterMigrationPhasePreparing), next: next("two"), phase: finalize, child: "move-two"},
	} {
		t.Run(name, func(t *testing.T) {
			state := Home{Migration: tc.migration, Children: tc.children, Reports: map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec{
				"beta": {State: shardingv1alpha1.MigrationFinished, Children: tc.next},
			}}
			after := state.Status()
			if after.Status.Phase != tc.phase || !strings.Contains(conditionsv1alpha1.GetMessage(after, migrationv1alpha1.ChildrenMoved), tc.message) {
				t.Errorf("status %+v", after.Status)
			}
			if (tc.phase == completed) != conditionsv1alpha1.IsTrue(after, migrationv1alpha1.ChildrenMoved) {
				t.Errorf("conditions %+v", after.Status.Conditions)
			}
			state.Migration = after
			after.Annotations[migrationv1alpha1.IgnoreSelectorAnnotationKey] = "true"
			child := state.Child()
			if (child == nil) != (tc.child == "") || child != nil && (child.Name != tc.child || child.Spec.DestinationShard != "beta" || child.Annotations[migrationv1alpha1.IgnoreSelectorAnnotationKey] != "true" || !metav1.IsControlledBy(child, tc.migration) || includesChildren(child)) {
				t.Errorf("child %+v, want %q", child, tc.child)
			}
		})
	}
}

func TestPlacementOfHome(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict  *shardingv1alpha1.MigrationPlacement
		before   bool
		reason   string
		entries  int64
		isPlaced bool
	}{
		"no verdict yet":         {reason: migrationv1alpha1.ReasonWaitingForWorkspaceShard},
		"no verdict any more":    {before: true, isPlaced: true},
		"allowed":                {verdict: &shardingv1alpha1.MigrationPlacement{Allowed: true}, isPlaced: true},
		"refused":                {verdict: &shardingv1alpha1.MigrationPlacement{Reason: "R", Message: "m"}, reason: "R"},
		"refused after approval": {before: true, verdict: &shardingv1alpha1.MigrationPlacement{Reason: "R", Message: "m"}, reason: "R"},
		"refused in the copy":    {before: true, verdict: &shardingv1alpha1.MigrationPlacement{Reason: "R", Message: "m"}, entries: 1, isPlaced: true},
		"refused before it":      {verdict: &shardingv1alpha1.MigrationPlacement{Reason: "R", Message: "m"}, entries: 1, reason: "R"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMigration(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating)
			if tc.before {
				conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.PlacementAllowed)
			}
			after := Home{Migration: m, Reports: map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec{
				"alpha": {State: shardingv1alpha1.MigrationAccepted, ParentShard: "root"}, "root": {Placement: tc.verdict}, "beta": {State: shardingv1alpha1.MigrationCopying, Entries: tc.entries},
			}}.Status()
			if isPlaced(after) != tc.isPlaced || conditionsv1alpha1.GetReason(after, migrationv1alpha1.PlacementAllowed) != tc.reason {
				t.Errorf("conditions %+v", after.Status.Conditions)
			}
			if waits := conditionsv1alpha1.GetReason(after, migrationv1alpha1.DataCopied) == migrationv1alpha1.ReasonWaitingForPlacement; waits == tc.isPlaced {
				t.Errorf("conditions %+v", after.Status.Conditions)
			}
		})
	}
}

// TestCleanUp: while nobody serves the logical cluster, the migration says why.
func TestCleanUp(t *testing.T) {
	m := newMigration(migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup)
	for _, tc := range []struct {
		origin, destination shardingv1alpha1.LogicalClusterMigrationReportSpec
		message             string
	}{
		{destination: shardingv1alpha1.LogicalClusterMigrationReportSpec{State: shardingv1alpha1.MigrationCopying}},
		{destination: shardingv1alpha1.LogicalClusterMigrationReportSpec{State: shardingv1alpha1.MigrationCopying, Reason: migrationv1alpha1.ReasonDestinationFull, Message: "no space"}, message: `shard "beta" has not taken over, and no shard serves the logical cluster: no space`},
		{destination: shardingv1alpha1.LogicalClusterMigrationReportSpec{State: shardingv1alpha1.MigrationCopying}, message: "no space"}, // the next attempt
		{destination: shardingv1alpha1.LogicalClusterMigrationReportSpec{State: shardingv1alpha1.MigrationServing}},
		{origin: shardingv1alpha1.LogicalClusterMigrationReportSpec{Reason: migrationv1alpha1.ReasonKeysNotHandedOver, Message: "keys"}, destination: shardingv1alpha1.LogicalClusterMigrationReportSpec{State: shardingv1alpha1.MigrationServing}, message: "keys"},
		{destination: shardingv1alpha1.LogicalClusterMigrationReportSpec{State: shardingv1alpha1.MigrationServing}, message: "keys"},
	} {
		tc.origin.State = shardingv1alpha1.MigrationMovedAway
		m = Home{Migration: m, Reports: map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec{"alpha": tc.origin, "beta": tc.destination}}.Status()
		if got := conditionsv1alpha1.GetMessage(m, migrationv1alpha1.OriginCleaned); (got == "") != (tc.message == "") || !strings.Contains(got, tc.message) {
			t.Errorf("origin %+v, destination %+v: got %q, want %q", tc.origin, tc.destination, got, tc.message)
		}
	}
}

func TestMarkProgress(t *testing.T) {
	m := newMigration(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating)
	conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.DataCopied, "R", conditionsv1alpha1.SeverityInfo, "the reason")
	start := conditionsv1alpha1.Get(m, migrationv1alpha1.DataCopied).LastTransitionTime.Time
	if again := markProgress(m, start.Add(time.Minute)); again != noProgressAfter-time.Minute || conditionsv1alpha1.Get(m, migrationv1alpha1.Progressing) != nil {
		t.Errorf("again in %s: %+v", again, m.Status.Conditions)
	}
	for range 2 { // the condition itself is no progress
		markProgress(m, start.Add(noProgressAfter))
		if message := conditionsv1alpha1.GetMessage(m, migrationv1alpha1.Progressing); !conditionsv1alpha1.IsFalse(m, migrationv1alpha1.Progressing) || !strings.Contains(message, "the reason") || !strings.Contains(message, "stays usable") {
			t.Errorf("conditions %+v", m.Status.Conditions)
		}
	}
	m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseCompleted
	if again := markProgress(m, start.Add(time.Hour)); again != 0 || conditionsv1alpha1.Get(m, migrationv1alpha1.Progressing) != nil {
		t.Errorf("again in %s: %+v", again, m.Status.Conditions)
	}
}

func TestEvents(t *testing.T) {
	at := func(phase migrationv1alpha1.LogicalClusterMigrationPhaseType, changes ...func(*migrationv1alpha1.LogicalClusterMigration)) *migrationv1alpha1.LogicalClusterMigration {
		m := newMigration(phase)
		for _, change := range changes {
			change(m)
		}
		return m
	}
	refused := func(m *migrationv1alpha1.LogicalClusterMigration) {
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.PlacementAllowed, "R", conditionsv1alpha1.SeverityWarning, "m")
	}
	aborted := func(m *migrationv1alpha1.LogicalClusterMigration) {
		conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.Aborted)
	}
	cleanup := migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup
	unclean := func(m *migrationv1alpha1.LogicalClusterMigration) {
		*m = *Home{Migration: m, Reports: map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec{
			"alpha": {State: shardingv1alpha1.MigrationMovedAway, Reason: migrationv1alpha1.ReasonKeysNotHandedOver, Message: "m"},
		}}.Status()
	}
	stuck := func(m *migrationv1alpha1.LogicalClusterMigration) {
		*m = *Home{Migration: m, Reports: map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec{
			"alpha": {State: shardingv1alpha1.MigrationMovedAway}, "beta": {State: shardingv1alpha1.MigrationCopying, Reason: migrationv1alpha1.ReasonDestinationFull, Message: "no space"},
		}}.Status()
	}
	full := func(m *migrationv1alpha1.LogicalClusterMigration) {
		*m = *Home{Migration: m, Reports: map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec{
			"alpha": {State: shardingv1alpha1.MigrationAccepted}, "beta": {State: shardingv1alpha1.MigrationCopying, Reason: migrationv1alpha1.ReasonDestinationFull, Message: "no space"},
		}}.Status()
	}
	preparing, migrating := at(migrationv1alpha1.LogicalClusterMigrationPhasePreparing), at(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating)
	for name, tc := range map[string]struct {
		before, after *migrationv1alpha1.LogicalClusterMigration
		want          string
	}{
		"none":        {migrating, migrating, ""},
		"start":       {preparing, migrating, "Started"},
		"refusal":     {preparing, at(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating, refused), "Started PlacementRefused"},
		"no repeat":   {at(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating, refused), at(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating, refused), ""},
		"hand-over":   {migrating, at(migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup), "HandedOver"},
		"completion":  {migrating, at(migrationv1alpha1.LogicalClusterMigrationPhaseCompleted), "Completed"},
		"abort":       {migrating, at(migrationv1alpha1.LogicalClusterMigrationPhaseAborting), "Aborting"},
		"aborted":     {migrating, at(migrationv1alpha1.LogicalClusterMigrationPhaseFailed, aborted), "Aborted"},
		"no space":    {migrating, at(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating, full), "DestinationFull Aborting"},
		"unclean":     {at(cleanup), at(cleanup, unclean), "KeysNotHandedOver"},
		"stuck":       {at(cleanup), at(cleanup, stuck), "DestinationFull"},
		"stuck yet":   {at(cleanup, stuck), at(cleanup, stuck), ""},
		"unclean yet": {at(cleanup, unclean), at(cleanup, unclean), ""},
		"failure":     {migrating, at(migrationv1alpha1.LogicalClusterMigrationPhaseFailed), "Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, one := range events(tc.before, tc.after) {
				got = append(got, one.reason)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
}
