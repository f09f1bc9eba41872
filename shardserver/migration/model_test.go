package migration

import (
	"fmt"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	modelOrigin, modelDestination = "alpha", "beta"
	modelReference                = "home:move"
)

// world is the state of a migration on three shards. All of it is stored, so that a crash of a shard is a step that does not
// happen. Each shard reads what others have published with a delay: any earlier state that is not older than what it has read
// before.
type world struct {
	random *rand.Rand
	log    []string

	// origin and destination are the LogicalClusters, nil if there is none; content are the objects.
	origin, destination *corev1alpha1.LogicalCluster
	originContent       bool
	destinationContent  bool
	recorded            bool // the destination has records of what it has copied
	copied              bool // the destination has all objects, since writes are paused
	token               string
	pauses              int
	// replica is the LogicalCluster at the origin as a replica there has seen it last, which decides what that serves.
	replica *corev1alpha1.LogicalCluster
	// revision is that of the LogicalCluster at the destination. copier and dropper are the revisions that two replicas there have
	// stored before they copy, or delete the copy. They go on with that, whatever happens meanwhile.
	revision, revisions, copier, dropper int

	// migration has all states that were stored; the last one is nil once it does not exist.
	migration []*migrationv1alpha1.LogicalClusterMigration
	reports   map[string][]*shardingv1alpha1.LogicalClusterMigrationReportSpec
	// seen are the indexes of what each reader has read last.
	seen map[string]int
}

func newWorld(seed uint64) *world {
	w := &world{
		random: rand.New(rand.NewPCG(seed, seed)), originContent: true,
		reports: map[string][]*shardingv1alpha1.LogicalClusterMigrationReportSpec{modelOrigin: {nil}, modelDestination: {nil}},
		seen:    map[string]int{},
	}
	w.origin = &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: "moving"}},
		Spec:       corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{}},
		Status:     corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
	}
	w.replica = w.origin.DeepCopy()
	w.migration = []*migrationv1alpha1.LogicalClusterMigration{{
		ObjectMeta: metav1.ObjectMeta{Name: "move", UID: "m", Finalizers: []string{migrationv1alpha1.MigrationFinalizer}},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: "moving", DestinationShard: modelDestination},
		Status:     migrationv1alpha1.LogicalClusterMigrationStatus{Phase: migrationv1alpha1.LogicalClusterMigrationPhasePreparing},
	}}
	return w
}

func last[T any](all []T) T { return all[len(all)-1] }

// read returns an earlier state, not older than the one that the reader has read before.
func read[T any](w *world, reader string, all []T) T {
	from := w.seen[reader]
	at := from + w.random.IntN(len(all)-from)
	w.seen[reader] = at
	return all[at]
}

func (w *world) report(shard, reader string) shardingv1alpha1.LogicalClusterMigrationReportSpec {
	if found := read(w, reader+" reads "+shard, w.reports[shard]); found != nil {
		return *found
	}
	return shardingv1alpha1.LogicalClusterMigrationReportSpec{}
}

func (w *world) originState() Origin {
	o := Origin{Shard: modelOrigin, Reference: modelReference, Migration: read(w, "origin reads the migration", w.migration), Cluster: w.origin, ParentKnows: true}
	serving := w.report(modelDestination, "origin").State
	o.Serving = serving == shardingv1alpha1.MigrationServing || serving == shardingv1alpha1.MigrationFinished
	return o
}

func (w *world) destinationState() Destination {
	d := Destination{
		Shard: modelDestination, Reference: modelReference, Migration: read(w, "destination reads the migration", w.migration),
		Cluster: w.destination, Recorded: w.recorded, OriginAborted: w.report(modelOrigin, "destination").State == shardingv1alpha1.MigrationAborted,
	}
	d.Ended = d.isArriving() && d.Migration == nil && last(w.migration) == nil
	return d
}

// steps are everything that may happen, in any order.
var steps = []struct {
	name string
	run  func(*world)
}{
	{"origin", (*world).originStep},
	{"origin reports", func(w *world) {
		report := w.originState().Report()
		if report != nil {
			report.Placement = &shardingv1alpha1.MigrationPlacement{Allowed: true} // it has the Workspace
		}
		w.reports[modelOrigin] = append(w.reports[modelOrigin], report)
	}},
	{"destination", (*world).destinationStep},
	{"destination pauses writes", (*world).pause},
	{"a replica of the origin sees the LogicalCluster", func(w *world) { w.replica = w.origin.DeepCopy() }},
	{"destination copies the rest", func(w *world) {
		w.copied = w.copies() && w.origin != nil && w.origin.Annotations[corev1alpha1.WritesPausedAnnotationKey] == w.token && w.token != "" &&
			w.replica.Annotations[corev1alpha1.WritesPausedAnnotationKey] == w.token // the pause has begun in all replicas
	}},
	{"destination copies what it has deleted", func(w *world) {
		if w.copies() && w.destination.Annotations[corev1alpha1.ArrivingAnnotationKey] != "" && w.random.IntN(2) == 0 {
			w.destinationContent, w.recorded = true, true
		}
	}},
	{"destination takes over", (*world).takeOver},
	{"destination deletes the copy", func(w *world) {
		if w.dropper != 0 && w.dropper == w.revision {
			w.destination, w.destinationContent, w.recorded, w.copied, w.revision = nil, false, false, false, 0
		}
	}},
	{"destination reports", func(w *world) {
		report := w.destinationState().Report()
		if report != nil && report.State == shardingv1alpha1.MigrationCopying && w.random.IntN(200) == 0 {
			report.Reason = migrationv1alpha1.ReasonDestinationFull
		}
		w.reports[modelDestination] = append(w.reports[modelDestination], report)
	}},
	{"the pause ends", func(w *world) {
		if w.origin != nil && w.origin.Annotations[corev1alpha1.MovedToAnnotationKey] == "" {
			delete(w.origin.Annotations, corev1alpha1.WritesPausedAnnotationKey)
		}
	}},
	{"home", (*world).homeStep},
}

func (w *world) originStep() {
	switch w.originState().Step() {
	case OriginAccept:
		w.origin.Annotations[corev1alpha1.MigratingAnnotationKey] = modelReference
	case OriginAbort:
		delete(w.origin.Annotations, corev1alpha1.MigratingAnnotationKey)
		delete(w.origin.Annotations, corev1alpha1.WritesPausedAnnotationKey)
	case OriginClean:
		w.origin, w.originContent = nil, false
	}
}

func (w *world) destinationStep() {
	switch w.destinationState().Step() {
	case DestinationCopy:
		if w.destination == nil {
			w.destination = &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				corev1alpha1.ArrivingAnnotationKey: "m", corev1alpha1.MigratingAnnotationKey: modelReference,
			}}}
		}
		w.copier = w.store()
		w.destinationContent, w.recorded = true, true
	case DestinationFinish:
		delete(w.destination.Annotations, corev1alpha1.MigratingAnnotationKey)
		w.store()
	case DestinationForget:
		w.recorded = false
	case DestinationDrop:
		w.destinationContent, w.recorded = false, false
		if w.random.IntN(3) > 0 { // etcd may have no space for the write
			w.dropper = w.store()
		}
	}
}

// store returns a new revision of the LogicalCluster at the destination.
func (w *world) store() int {
	w.revisions++
	w.revision = w.revisions
	return w.revision
}

// copies reports whether the replica that copies can write.
func (w *world) copies() bool { return w.copier != 0 && w.copier == w.revision }

// serves reports whether the origin answers requests of the destination.
func (w *world) serves() bool {
	return w.originState().AnswersTo(modelDestination)
}

func (w *world) pause() {
	if w.copier == 0 || !w.serves() || w.origin.Annotations[corev1alpha1.MovedToAnnotationKey] != "" || w.origin.DeletionTimestamp != nil {
		return
	}
	w.pauses++
	w.token, w.copied = fmt.Sprint(w.pauses), false
	w.origin.Annotations[corev1alpha1.WritesPausedAnnotationKey] = w.token
}

// takeOver asks the origin to hand over. The answer comes when all replicas of the origin have seen that, and the destination may crash
// before it stores it.
func (w *world) takeOver() {
	if w.copier == 0 || !w.serves() {
		return
	}
	if w.origin.Annotations[corev1alpha1.MovedToAnnotationKey] == "" {
		if !w.copied || w.origin.Annotations[corev1alpha1.WritesPausedAnnotationKey] != w.token || w.origin.DeletionTimestamp != nil {
			return
		}
		w.origin.Annotations[corev1alpha1.MovedToAnnotationKey] = modelDestination
	}
	if servesReads(w.replica) || w.random.IntN(3) == 0 || !w.copies() {
		return
	}
	w.destination = w.origin.DeepCopy()
	delete(w.destination.Annotations, corev1alpha1.MovedToAnnotationKey)
	delete(w.destination.Annotations, corev1alpha1.WritesPausedAnnotationKey)
	w.store()
}

func (w *world) homeStep() {
	current := last(w.migration)
	if current == nil {
		return
	}
	reports := map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec{}
	for _, shard := range []string{modelOrigin, modelDestination} {
		if report := w.report(shard, "home"); report.State != "" {
			reports[shard] = report
		}
	}
	after := Home{Migration: current, Reports: reports}.Status()
	if hasEnded(after) {
		after.Finalizers = nil
	}
	w.migration = append(w.migration, after)
	if after.DeletionTimestamp != nil && len(after.Finalizers) == 0 {
		w.migration = append(w.migration, nil)
	}
}

func (w *world) deleteMigration() {
	current := last(w.migration).DeepCopy()
	if current.DeletionTimestamp == nil {
		now := metav1.Now()
		current.DeletionTimestamp = &now
		w.migration = append(w.migration, current)
	}
}

func acceptsWrites(cluster *corev1alpha1.LogicalCluster) bool {
	if cluster == nil {
		return false
	}
	for _, key := range []string{corev1alpha1.WritesPausedAnnotationKey, corev1alpha1.MovedToAnnotationKey, corev1alpha1.ArrivingAnnotationKey} {
		if cluster.Annotations[key] != "" {
			return false
		}
	}
	return true
}

// servesReads reports whether a replica that has seen a LogicalCluster serves reads.
func servesReads(cluster *corev1alpha1.LogicalCluster) bool {
	return cluster != nil && !movestate.Of(cluster.Annotations).IsHidden()
}

// check fails if two shards accept writes, or one of them without the objects, or if a replica of the origin serves reads that may be older
// than a write which the destination has acknowledged.
func (w *world) check(t *testing.T) {
	t.Helper()
	origin, destination := acceptsWrites(w.origin), acceptsWrites(w.destination)
	switch {
	case origin && destination:
		t.Fatalf("both shards accept writes after %v", w.log)
	case destination && servesReads(w.replica):
		t.Fatalf("a replica of the origin serves reads, and the destination writes, after %v", w.log)
	case origin && !w.originContent, destination && !w.destinationContent:
		t.Fatalf("a shard accepts writes without the objects after %v", w.log)
	case !w.originContent && !w.destinationContent:
		t.Fatalf("the objects are lost after %v", w.log)
	}
}

func (w *world) step(t *testing.T, i int) {
	t.Helper()
	w.log = append(w.log, steps[i].name)
	steps[i].run(w)
	w.check(t)
}

// TestModel runs the decisions of all three shards in random order, with delayed views, and a user who deletes the migration at
// a random time. Then everything happens in turn, and the migration has to end.
func TestModel(t *testing.T) {
	completed, aborted := 0, 0
	for seed := range uint64(1000) {
		w := newWorld(seed)
		deleteAt := w.random.IntN(400)
		for i := range 200 {
			if i == deleteAt && last(w.migration) != nil {
				w.log = append(w.log, "the user deletes the migration")
				w.deleteMigration()
			}
			w.step(t, w.random.IntN(len(steps)))
		}
		for range 100 {
			for i := range steps {
				if steps[i].name != "the pause ends" {
					w.step(t, i)
				}
			}
		}
		current := last(w.migration)
		switch {
		case current != nil && !hasEnded(current):
			t.Fatalf("seed %d: the migration does not end: %+v, origin %+v, destination %+v", seed, current.Status, w.origin, w.destination)
		case acceptsWrites(w.origin) == acceptsWrites(w.destination):
			t.Fatalf("seed %d: origin %+v, destination %+v", seed, w.origin, w.destination)
		case acceptsWrites(w.destination):
			completed++
			if w.origin != nil || w.recorded || w.destination.Annotations[corev1alpha1.MigratingAnnotationKey] != "" {
				t.Fatalf("seed %d: something is left: origin %+v, recorded %t, destination %+v", seed, w.origin, w.recorded, w.destination)
			}
		default:
			aborted++
			if w.origin.Annotations[corev1alpha1.MigratingAnnotationKey] != "" || w.destination != nil || w.destinationContent || w.recorded {
				t.Fatalf("seed %d: something is left: origin %+v, destination %+v, recorded %t", seed, w.origin, w.destination, w.recorded)
			}
		}
	}
	if completed == 0 || aborted == 0 {
		t.Errorf("%d migrations were completed, %d aborted", completed, aborted)
	}
	t.Logf("%d migrations were completed, %d aborted", completed, aborted)
}
