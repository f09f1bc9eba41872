package restoredrill

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
)

// counter is what shards serve.
type counter struct {
	count   int64
	err     error
	endless func() // is called when the time of the request is over
}

func (c *counter) CountLogicalClusters(ctx context.Context, _ desired.Shard) (int64, error) {
	if c.endless != nil {
		<-ctx.Done()
		c.endless()
		return 0, ctx.Err()
	}
	return c.count, c.err
}

// fixture is a RestoreDrill in a cluster.
type fixture struct {
	t     *testing.T
	c     client.Client
	name  string // of the namespace of drills
	now   time.Time
	after time.Duration // when the RestoreDrill is reconciled again
	reads counter
	// creator has created the namespace of drills; the client in memory keeps no managers of fields, and sets no UID and no time of creation.
	creator []metav1.ManagedFieldsEntry
	// storeErr is that of reading a BackupStore.
	storeErr error
	drill    *operatorv1alpha1.RestoreDrill
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	f := &fixture{t: t, name: "drills", now: time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)}
	f.drill = &operatorv1alpha1.RestoreDrill{ObjectMeta: metav1.ObjectMeta{Name: "weekly", Namespace: "kcp", UID: "d", Generation: 1, CreationTimestamp: metav1.NewTime(f.now)}}
	f.drill.Spec.RootShardRef.Name, f.drill.Spec.StoreRef.Name = "root", "store"
	f.drill.Spec.Schedule, f.drill.Spec.Immediate = "0 3 * * *", true
	ours := metav1.ManagedFieldsEntry{Manager: apply.FieldManager + "-d", Operation: metav1.ManagedFieldsOperationApply, Time: &f.drill.CreationTimestamp}
	f.c = interceptor.NewClient(memory.NewClient(t, append(objects, f.drill)...).(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, object, options...)
			if _, ok := object.(*operatorv1alpha1.BackupStore); ok && f.storeErr != nil {
				return f.storeErr
			}
			if _, ok := object.(*corev1.Namespace); ok {
				object.SetManagedFields(append(f.creator, ours))
				object.SetCreationTimestamp(*ours.Time)
			}
			return err
		},
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			err, created := c.Apply(ctx, object, options...), &corev1.Namespace{}
			if c.Get(ctx, client.ObjectKey{Name: f.name}, created) == nil && created.UID == "" {
				created.UID = "n"
				return errors.Join(err, c.Update(ctx, created))
			}
			return err
		},
	})
	return f
}

// backup returns a Backup that is completed.
func (f *fixture) backup(name string, age time.Duration) *operatorv1alpha1.Backup {
	out := &operatorv1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp"}, Spec: f.drill.Spec.BackupSpec}
	stopped := metav1.NewTime(f.now.Add(-age))
	out.Status = operatorv1alpha1.BackupStatus{Phase: operatorv1alpha1.BackupPhaseCompleted, BackupID: "id-" + name, ManifestDigest: "digest", StoppedAt: &stopped}
	return out
}

func (f *fixture) create(objects ...client.Object) {
	f.t.Helper()
	for _, object := range objects {
		if err := f.c.Create(f.t.Context(), object); err != nil {
			f.t.Fatal(err)
		}
	}
}

// reconcile reconciles the RestoreDrill once, and returns one of its conditions.
func (f *fixture) reconcile(condition string) metav1.Condition {
	f.t.Helper()
	reconciler := NewReconciler(reconcile.Config{Cluster: apply.Cluster{Client: f.c}, Recorder: events.NewFakeRecorder(100), Now: func() time.Time { return f.now }}, f.name, &f.reads)
	key := client.ObjectKeyFromObject(f.drill)
	result, err := reconciler.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil && !errors.Is(err, f.storeErr) {
		f.t.Fatal(err)
	}
	f.after = result.RequeueAfter
	f.drill = &operatorv1alpha1.RestoreDrill{}
	if err := f.c.Get(f.t.Context(), key, f.drill); client.IgnoreNotFound(err) != nil {
		f.t.Fatal(err)
	}
	if found := meta.FindStatusCondition(f.drill.Status.Conditions, condition); found != nil {
		return *found
	}
	return metav1.Condition{}
}

func (f *fixture) hasNamespace() bool {
	err := f.c.Get(f.t.Context(), client.ObjectKey{Name: f.name}, &corev1.Namespace{})
	return !apierrors.IsNotFound(err)
}

// begin reconciles until the namespace exists, and fills it as far as a completed Restore.
func (f *fixture) begin() *operatorv1alpha1.RootShard {
	f.t.Helper()
	f.reconcile("")
	f.reconcile("")
	if run := f.drill.Status.Active; run == nil || !f.hasNamespace() {
		f.t.Fatalf("no drill runs: %+v", f.drill.Status)
	}
	f.drill.Status.Active.DataLoss, f.drill.Status.Active.SavedLogicalClusters = "1h0m0s", 10
	if err := f.c.Status().Update(f.t.Context(), f.drill); err != nil {
		f.t.Fatal(err)
	}
	of := map[string]string{annotationNamespaceUID: f.drill.Status.Active.NamespaceUID, annotationSaved: "10"}
	restore := &operatorv1alpha1.Restore{ObjectMeta: metav1.ObjectMeta{Name: restoreName, Namespace: f.name, Annotations: of}}
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: f.name, Annotations: of}}
	f.create(restore, root)
	restore.Status.Phase = operatorv1alpha1.RestorePhaseCompleted
	if err := f.c.Status().Update(f.t.Context(), restore); err != nil {
		f.t.Fatal(err)
	}
	return root
}

func (f *fixture) ready(root *operatorv1alpha1.RootShard) {
	f.t.Helper()
	root.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: root.Generation}}
	if err := f.c.Status().Update(f.t.Context(), root); err != nil {
		f.t.Fatal(err)
	}
}

// TestSuccess goes from the start of a drill to its end.
func TestSuccess(t *testing.T) {
	f := newFixture(t)
	f.create(f.backup("old", 2*time.Hour), f.backup("new", time.Hour))
	if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); scheduled.Reason != reasonRunning || f.hasNamespace() {
		t.Fatalf("before it is recorded, nothing is created: %+v", scheduled)
	}
	root := f.begin()
	if run := f.drill.Status.Active; run.Backup != "new" || run.BackupID != "id-new" || run.ManifestDigest != "digest" || len(f.drill.Finalizers) != 1 {
		t.Errorf("the run is %+v", run)
	}
	f.now = f.now.Add(time.Minute)
	if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); !strings.Contains(scheduled.Message, "RootShard root was not reconciled yet") {
		t.Errorf("got %+v", scheduled)
	}
	f.ready(root)
	f.reads.err = errors.New("refused")
	if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); !strings.Contains(scheduled.Message, "shard root: refused") {
		t.Errorf("got %+v", scheduled)
	}
	f.reads = counter{count: 10}
	f.now = f.now.Add(time.Minute)
	if current := f.reconcile(operatorv1alpha1.ConditionCurrent); current.Status != metav1.ConditionTrue || !strings.Contains(current.Message, "in 2m0s, to a state of 1h0m0s before") || !f.hasNamespace() {
		t.Errorf("got %+v", current)
	}
	f.reconcile("")
	f.now = f.now.Add(time.Minute)
	f.reconcile("")
	status := f.drill.Status
	if f.hasNamespace() || status.Active != nil || len(status.History) != 1 || status.History[0].LogicalClusters != 10 || status.LastResult != operatorv1alpha1.RestoreDrillSucceeded ||
		status.RecoveryTime != "2m0s" || status.DataLoss != "1h0m0s" || !meta.IsStatusConditionTrue(status.Conditions, operatorv1alpha1.ConditionReady) {
		t.Errorf("the status is %+v", status)
	}
	if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); scheduled.Reason != reasonNoneDue || f.drill.Status.NextScheduleTime.UTC().Format(time.DateTime) != "2030-01-03 03:00:00" || f.after != maxRequeue {
		t.Errorf("got %+v, %v, and again after %s", scheduled, f.drill.Status.NextScheduleTime, f.after)
	}
	f.now = f.now.Add(72 * time.Hour)
	f.drill.Spec.Suspend = true
	if err := f.c.Update(t.Context(), f.drill); err != nil {
		t.Fatal(err)
	}
	if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); scheduled.Reason != reasonSuspended || f.drill.Status.Active != nil {
		t.Errorf("suspended: %+v", scheduled)
	}
}

// TestFailure ends a drill that does not succeed in time, and keeps saying so until one succeeds.
func TestFailure(t *testing.T) {
	f := newFixture(t)
	f.create(f.backup("new", time.Hour))
	f.begin()
	f.now = f.now.Add(time.Hour)
	if current := f.reconcile(operatorv1alpha1.ConditionCurrent); current.Reason != reasonFailed || !strings.Contains(current.Message, "did not end within 1h0m0s") {
		t.Errorf("got %+v", current)
	}
	f.reconcile("")
	for range 2 {
		if current := f.reconcile(operatorv1alpha1.ConditionCurrent); current.Reason != reasonFailed || !strings.Contains(current.Message, "did not end within 1h0m0s") || f.hasNamespace() {
			t.Errorf("after the drill: %+v", current)
		}
	}
	if status := f.drill.Status; status.Active != nil || len(status.History) != 1 || status.LastSuccessfulTime != nil || !meta.IsStatusConditionFalse(status.Conditions, operatorv1alpha1.ConditionReady) {
		t.Errorf("the status is %+v", status)
	}
}

// TestCause: a drill that is late says what it has waited for.
func TestCause(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"nothing is there": {nil, "did not end within 1h0m0s: BackupStore store does not exist in namespace kcp"},
		"an error":         {errors.New("backupstores is forbidden"), "backupstores is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.create(f.backup("new", time.Hour))
			f.storeErr = tc.err
			for range 3 {
				f.reconcile("")
			}
			f.now = f.now.Add(time.Hour)
			if current := f.reconcile(operatorv1alpha1.ConditionCurrent); current.Reason != reasonFailed || !strings.Contains(current.Message, tc.want) {
				t.Errorf("got %+v", current)
			}
		})
	}
}

// TestForeignNamespace: a namespace that no drill has created is never changed.
func TestForeignNamespace(t *testing.T) {
	f := newFixture(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "drills"}})
	f.create(f.backup("new", time.Hour))
	for range 3 {
		if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); scheduled.Reason != reasonWaiting || !strings.Contains(scheduled.Message, "no drill has created it") || f.drill.Status.Active != nil {
			t.Errorf("got %+v", scheduled)
		}
	}
	if err := f.c.Delete(t.Context(), f.drill); err != nil || !f.hasNamespace() {
		t.Errorf("%v: the namespace is gone", err)
	}
}

// TestCreatedAtTheSameTime: a namespace that somebody else has created while a drill began gets its labels back, and is not deleted, also if the operator
// dies before it has seen that.
func TestCreatedAtTheSameTime(t *testing.T) {
	for name, dies := range map[string]bool{"the operator lives": false, "it dies": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.create(f.backup("new", time.Hour))
			f.reconcile("")
			before := f.drill.Status
			created := metav1.ManagedFieldsEntry{Manager: "kubectl-create", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:kubernetes.io/metadata.name":{}}}}`)}
			if !dies {
				f.creator = []metav1.ManagedFieldsEntry{created}
			}
			f.reconcile("")
			if dies {
				f.creator, f.drill.Status = []metav1.ManagedFieldsEntry{created}, before
				f.drill.Status.Active.NamespaceUID = ""
				if err := f.c.Status().Update(t.Context(), f.drill); err != nil {
					t.Fatal(err)
				}
				f.reconcile("")
			}
			f.reconcile("")
			f.reconcile("")
			if history := f.drill.Status.History; len(history) != 1 || history[0].Result != operatorv1alpha1.RestoreDrillFailed || !strings.Contains(history[0].Message, "created by somebody else") {
				t.Errorf("the status is %+v", f.drill.Status)
			}
			object := &corev1.Namespace{}
			if err := f.c.Get(t.Context(), client.ObjectKey{Name: f.name}, object); err != nil || len(object.Labels)+len(object.Annotations) != 0 {
				t.Errorf("%v: the namespace is %+v", err, object)
			}
		})
	}
}

// TestEarlierDrill: what a cache has of an earlier drill with the same names does not count, and is not taken for what has to be created.
func TestEarlierDrill(t *testing.T) {
	f := newFixture(t)
	f.create(f.backup("new", time.Hour))
	root := f.begin()
	f.ready(root)
	root.Annotations[annotationNamespaceUID] = "before"
	if err := f.c.Update(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); !strings.Contains(scheduled.Message, "the copy of RootShard root does not exist") {
		t.Errorf("with another RootShard: %+v", scheduled)
	}
	restore := &operatorv1alpha1.Restore{}
	if err := f.c.Get(t.Context(), client.ObjectKey{Namespace: f.name, Name: restoreName}, restore); err != nil {
		t.Fatal(err)
	}
	restore.Annotations = nil
	if err := f.c.Update(t.Context(), restore); err != nil {
		t.Fatal(err)
	}
	if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); !strings.Contains(scheduled.Message, "RootShard root does not exist in namespace kcp") {
		t.Errorf("with another Restore: %+v", scheduled)
	}
	s := &scope{config: reconcile.Config{Cluster: apply.Cluster{Client: f.c}}, object: f.drill}
	if problem, err := createMissing(t.Context(), s, newRestore(f.drill, f.drill.Status.Active)); err != nil || problem != "Restore drill is that of an earlier drill" {
		t.Errorf("got %q, %v", problem, err)
	}
}

// TestNotStarted has what keeps a drill from starting.
func TestNotStarted(t *testing.T) {
	for name, tc := range map[string]struct {
		change       func(*fixture)
		reason, text string
	}{
		"no namespace for drills": {func(f *fixture) { f.name = "" }, reasonNotEnabled, "--restore-drill-namespace"},
		"no backup":               {func(*fixture) {}, reasonSkipped, "no Backup is completed"},
		"no times":                {func(f *fixture) { f.drill.Spec.Schedule = "0 0 30 2 *" }, reasonInvalidSpec, "never occurs"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.change(f)
			if err := f.c.Update(t.Context(), f.drill); err != nil {
				t.Fatal(err)
			}
			if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); scheduled.Status != metav1.ConditionFalse || scheduled.Reason != tc.reason || !strings.Contains(scheduled.Message, tc.text) || f.drill.Status.Active != nil {
				t.Errorf("got %+v", scheduled)
			}
		})
	}
}

// TestChangedSchedule announces another time as soon as the schedule or its time zone changes, and none anew that has passed.
func TestChangedSchedule(t *testing.T) {
	f := newFixture(t)
	f.drill.Spec.Immediate = false
	change := func(schedule, zone string) {
		t.Helper()
		f.drill.Spec.Schedule, f.drill.Spec.TimeZone = schedule, zone
		if err := f.c.Update(t.Context(), f.drill); err != nil {
			t.Fatal(err)
		}
		f.reconcile("")
	}
	want := func(next string) {
		t.Helper()
		if got := f.drill.Status.NextScheduleTime.UTC().Format(time.DateTime); got != next {
			t.Errorf("the next drill is due at %s, want %s", got, next)
		}
	}
	change("@yearly", "")
	want("2031-01-01 00:00:00")
	change("0 5 * * *", "")
	want("2030-01-02 05:00:00")
	change("0 5 * * *", "Europe/Berlin")
	want("2030-01-02 04:00:00")
	f.create(f.backup("new", time.Hour))
	f.now = f.now.Add(2 * time.Hour)
	change("@yearly", "")
	if f.drill.Status.Active == nil {
		t.Errorf("the drill that was announced does not run: %+v", f.drill.Status)
	}
}

// TestEndlessRead stops reading a copy that does not stop to answer when the time of the drill is over.
func TestEndlessRead(t *testing.T) {
	f := newFixture(t)
	f.create(f.backup("new", time.Hour))
	f.ready(f.begin())
	f.reads.endless = func() {}
	f.now = f.now.Add(time.Hour - time.Millisecond)
	const want = "shard root: the lists of logical clusters did not end within 1ms"
	if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); !strings.Contains(scheduled.Message, want) {
		t.Errorf("got %+v", scheduled)
	}
	f.reads.endless = func() { f.now = f.now.Add(time.Millisecond) }
	if current := f.reconcile(operatorv1alpha1.ConditionCurrent); current.Reason != reasonFailed || !strings.Contains(current.Message, "did not end within 1h0m0s: the restored shards cannot be read: "+want) {
		t.Errorf("got %+v", current)
	}
}

// TestSkipped says that a drill was skipped until the next one is due.
func TestSkipped(t *testing.T) {
	f := newFixture(t)
	f.drill.Spec.Immediate = false
	if err := f.c.Update(t.Context(), f.drill); err != nil {
		t.Fatal(err)
	}
	f.reconcile("")
	f.now = f.now.Add(24 * time.Hour)
	for range 3 {
		if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); scheduled.Reason != reasonSkipped || !strings.Contains(scheduled.Message, "no Backup is completed") {
			t.Errorf("got %+v", scheduled)
		}
		f.now = f.now.Add(time.Hour)
	}
	f.create(f.backup("new", time.Hour))
	f.now = f.now.Add(24 * time.Hour)
	if scheduled := f.reconcile(operatorv1alpha1.ConditionScheduled); scheduled.Reason != reasonRunning {
		t.Errorf("got %+v", scheduled)
	}
}
