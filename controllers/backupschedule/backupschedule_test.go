package backupschedule

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
)

const namespace = "kcp"

// fixture is a schedule at three in the morning, with a clock.
type fixture struct {
	t      *testing.T
	client client.Client
	object *operatorv1alpha1.BackupSchedule
	now    time.Time
}

func at(text string) time.Time {
	out, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		panic(err)
	}
	return out
}

func newSchedule() *operatorv1alpha1.BackupSchedule {
	out := &operatorv1alpha1.BackupSchedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: namespace, Generation: 1, CreationTimestamp: metav1.NewTime(at("2030-01-01 12:00"))}}
	out.Spec.Schedule = "0 3 * * *"
	out.Spec.RootShardRef.Name, out.Spec.StoreRef.Name = "root", "store"
	return out
}

func newBackup(name, created string, phase operatorv1alpha1.BackupPhase) *operatorv1alpha1.Backup {
	out := &operatorv1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: namespace, UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(at(created)),
		Labels: map[string]string{operatorv1alpha1.LabelBackupSchedule: "nightly"},
	}}
	out.Spec = newSchedule().Spec.BackupSpec
	out.Status.Phase = phase
	return out
}

func newFixture(t *testing.T, object *operatorv1alpha1.BackupSchedule, more ...client.Object) *fixture {
	t.Helper()
	f := &fixture{t: t, object: object, now: at("2030-01-01 12:00")}
	// The API server sets the time of a creation.
	f.client = interceptor.NewClient(memory.NewClient(t, append([]client.Object{object}, more...)...).(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, created client.Object, opts ...client.CreateOption) error {
			created.SetCreationTimestamp(metav1.NewTime(f.now))
			return c.Create(ctx, created, opts...)
		},
	})
	return f
}

// reconcile reconciles at a time, and returns when the next reconcile is wanted.
func (f *fixture) reconcile(now string) time.Duration {
	f.t.Helper()
	after, err := f.try(now)
	if err != nil {
		f.t.Fatal(err)
	}
	return after
}

func (f *fixture) try(now string) (time.Duration, error) {
	f.t.Helper()
	f.now = at(now)
	r := NewReconciler(reconcile.Config{Cluster: apply.Cluster{Client: f.client}, Recorder: events.NewFakeRecorder(100), Now: func() time.Time { return f.now }})
	result, err := r.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.object)})
	if err := f.client.Get(f.t.Context(), client.ObjectKeyFromObject(f.object), f.object); err != nil {
		f.t.Fatal(err)
	}
	return result.RequeueAfter, err
}

func (f *fixture) names() []string {
	f.t.Helper()
	list := &operatorv1alpha1.BackupList{}
	if err := f.client.List(f.t.Context(), list); err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for _, b := range list.Items {
		out = append(out, b.Name)
	}
	slices.Sort(out)
	return out
}

func (f *fixture) expect(names ...string) {
	f.t.Helper()
	if got := f.names(); !slices.Equal(got, names) {
		f.t.Errorf("at %s, the Backups are %v, want %v", f.now, got, names)
	}
}

// end ends a Backup.
func (f *fixture) end(name string, phase operatorv1alpha1.BackupPhase) {
	f.t.Helper()
	b := &operatorv1alpha1.Backup{}
	if err := f.client.Get(f.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, b); err != nil {
		f.t.Fatal(err)
	}
	b.Status.Phase = phase
	if phase == operatorv1alpha1.BackupPhaseCompleted {
		b.Status.StoppedAt = &metav1.Time{Time: b.CreationTimestamp.Add(time.Minute)}
	}
	if err := f.client.Status().Update(f.t.Context(), b); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) expectCondition(conditionType string, status metav1.ConditionStatus, text string) {
	f.t.Helper()
	got := meta.FindStatusCondition(f.object.Status.Conditions, conditionType)
	if got == nil || got.Status != status || !strings.Contains(got.Message, text) {
		f.t.Errorf("at %s, the condition is %+v; want %s %s and %q", f.now, got, conditionType, status, text)
	}
}

const (
	completed = operatorv1alpha1.BackupPhaseCompleted
	failed    = operatorv1alpha1.BackupPhaseFailed
	running   = operatorv1alpha1.BackupPhaseRunning
)

func TestSchedule(t *testing.T) {
	f := newFixture(t, newSchedule())
	if after := f.reconcile("2030-01-01 12:00"); after != maxRequeue {
		t.Errorf("reconciled again after %s", after)
	}
	f.expect()
	f.expectCondition(operatorv1alpha1.ConditionReady, metav1.ConditionTrue, "")
	f.expectCondition(operatorv1alpha1.ConditionCurrent, metav1.ConditionTrue, "no Backup is completed yet, and none is overdue")
	if next := f.object.Status.NextScheduleTime; next == nil || !next.Time.Equal(at("2030-01-02 03:00")) {
		t.Errorf("the next is at %v", next)
	}
	if after := f.reconcile("2030-01-02 02:59"); after != time.Minute {
		t.Errorf("reconciled again after %s", after)
	}
	f.reconcile("2030-01-02 03:00")
	f.reconcile("2030-01-02 03:01")
	const first = "nightly-20300102030000"
	f.expect(first)
	f.expectCondition(operatorv1alpha1.ConditionScheduled, metav1.ConditionTrue, "created Backup "+first)
	made := &operatorv1alpha1.Backup{}
	if err := f.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: first}, made); err != nil {
		t.Fatal(err)
	}
	if made.Spec != f.object.Spec.BackupSpec || made.Labels[operatorv1alpha1.LabelBackupSchedule] != "nightly" || len(made.OwnerReferences) > 0 {
		t.Errorf("it is %+v", made)
	}
	f.end(first, completed)
	f.reconcile("2030-01-02 03:02")
	status := f.object.Status
	if status.LastBackup != first || !status.LastScheduleTime.Time.Equal(at("2030-01-02 03:00")) || !status.LastSuccessfulTime.Time.Equal(at("2030-01-02 03:01")) || !status.NextScheduleTime.Time.Equal(at("2030-01-03 03:00")) {
		t.Errorf("the status is %+v", status)
	}
	f.expectCondition(operatorv1alpha1.ConditionCurrent, metav1.ConditionTrue, "Backup "+first+" is completed")
}

func TestOnceFor(t *testing.T) {
	const first = "nightly-20300102030000"
	start := func(t *testing.T) *fixture {
		f := newFixture(t, newSchedule())
		f.reconcile("2030-01-01 12:00")
		return f
	}
	t.Run("an operator that was away for a week", func(t *testing.T) {
		f := start(t)
		f.reconcile("2030-01-09 12:00")
		f.expect(first)
		f.end(first, completed)
		f.reconcile("2030-01-09 12:01")
		f.expect(first)
		f.reconcile("2030-01-10 03:00")
		f.expect(first, "nightly-20300110030000")
	})
	t.Run("a status that was lost", func(t *testing.T) {
		f := start(t)
		before := f.object.Status.DeepCopy()
		f.reconcile("2030-01-02 03:00")
		f.object.Status = *before
		if err := f.client.Status().Update(t.Context(), f.object); err != nil {
			t.Fatal(err)
		}
		f.reconcile("2030-01-02 03:01")
		f.expect(first)
		if f.object.Status.LastBackup != first {
			t.Errorf("the status is %+v", f.object.Status)
		}
	})
	t.Run("a clock that is years ahead, and set back", func(t *testing.T) {
		f := start(t)
		f.reconcile("2035-06-01 12:00")
		f.expect(first)
		f.end(first, completed)
		f.reconcile("2030-01-02 02:00")
		f.reconcile("2030-01-02 03:00") // its Backup exists
		f.expect(first)
		f.reconcile("2030-01-03 03:00")
		f.expect(first, "nightly-20300103030000")
	})
	t.Run("a schedule that was created again", func(t *testing.T) {
		f := start(t)
		f.reconcile("2030-01-02 03:00")
		f.end(first, completed)
		if err := f.client.Delete(t.Context(), f.object); err != nil {
			t.Fatal(err)
		}
		f.object = newSchedule()
		f.object.Spec.Immediate = true // it has a Backup
		f.now = at("2030-01-02 02:30") // by a clock that was set back
		if err := f.client.Create(t.Context(), f.object); err != nil {
			t.Fatal(err)
		}
		f.reconcile("2030-01-02 02:30")
		f.reconcile("2030-01-02 03:00")
		f.expect(first)
	})
	t.Run("one that is created at once", func(t *testing.T) {
		object := newSchedule()
		object.Spec.Immediate = true
		f := newFixture(t, object)
		f.reconcile("2030-01-01 12:00")
		f.reconcile("2030-01-01 12:01")
		f.expect("nightly-20300101120000")
	})
}

func TestSkipped(t *testing.T) {
	const first = "nightly-20300102030000"
	f := newFixture(t, newSchedule())
	f.reconcile("2030-01-01 12:00")
	f.reconcile("2030-01-02 03:00")
	f.end(first, running)
	for _, now := range []string{"2030-01-03 03:00", "2030-01-03 03:01"} {
		f.reconcile(now)
		f.expect(first)
		f.expectCondition(operatorv1alpha1.ConditionScheduled, metav1.ConditionFalse, "the Backup that was due at 2030-01-03T03:00:00Z was not created: Backup "+first+" of this schedule has not ended")
		f.expectCondition(operatorv1alpha1.ConditionReady, metav1.ConditionTrue, "see condition Scheduled")
	}
	f.reconcile("2030-01-04 03:00")
	f.expectCondition(operatorv1alpha1.ConditionCurrent, metav1.ConditionFalse, "since 2030-01-01T12:00:00Z, two Backups or more were due, and none was completed: see condition Scheduled, and the last Backup ("+first+")")
	f.expectCondition(operatorv1alpha1.ConditionStalled, metav1.ConditionTrue, "")
	f.end(first, failed)
	f.reconcile("2030-01-04 04:00")
	f.expect(first) // what was skipped is not made up for
	f.reconcile("2030-01-05 03:00")
	f.expect(first, "nightly-20300105030000")
	f.end("nightly-20300105030000", completed)
	f.reconcile("2030-01-05 03:02")
	f.expectCondition(operatorv1alpha1.ConditionReady, metav1.ConditionTrue, "")
}

func TestForeignName(t *testing.T) {
	foreign := newBackup("nightly-20300102030000", "2030-01-01 12:00", completed)
	foreign.Labels = nil
	f := newFixture(t, newSchedule(), foreign)
	f.reconcile("2030-01-01 12:00")
	f.reconcile("2030-01-02 03:00")
	f.expectCondition(operatorv1alpha1.ConditionScheduled, metav1.ConditionFalse, "exists, and is not of this schedule")
}

func TestSuspend(t *testing.T) {
	f := newFixture(t, newSchedule())
	f.reconcile("2030-01-01 12:00")
	set := func(suspend bool) {
		f.object.Spec.Suspend = suspend
		if err := f.client.Update(t.Context(), f.object); err != nil {
			t.Fatal(err)
		}
	}
	set(true)
	f.reconcile("2030-01-02 03:00")
	f.expect()
	f.expectCondition(operatorv1alpha1.ConditionReady, metav1.ConditionTrue, "")
	if f.object.Status.NextScheduleTime != nil || meta.FindStatusCondition(f.object.Status.Conditions, operatorv1alpha1.ConditionCurrent) != nil {
		t.Errorf("the status is %+v", f.object.Status)
	}
	set(false)
	f.reconcile("2030-01-02 12:00")
	f.expect()
	f.reconcile("2030-01-03 03:00")
	f.expect("nightly-20300103030000")
}

func TestInvalidSpec(t *testing.T) {
	object := newSchedule()
	object.Spec.TimeZone = "Europe/Atlantis"
	f := newFixture(t, object)
	f.reconcile("2030-01-01 12:00")
	f.expectCondition(operatorv1alpha1.ConditionStalled, metav1.ConditionTrue, "timeZone is \"Europe/Atlantis\"")
}

// TestRejected creates a Backup as soon as the API server admits it.
func TestRejected(t *testing.T) {
	f := newFixture(t, newSchedule())
	f.reconcile("2030-01-01 12:00")
	admits := f.client
	f.client = interceptor.NewClient(admits.(client.WithWatch), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "backups"}, "nightly", nil)
		},
	})
	for range 2 {
		if after := f.reconcile("2030-01-02 03:00"); after < time.Minute {
			t.Errorf("it asks an API server that rejects again after %s", after)
		}
	}
	f.expectCondition(operatorv1alpha1.ConditionStalled, metav1.ConditionTrue, "the API server rejects Backup nightly-20300102030000")
	f.client = admits
	f.reconcile("2030-01-02 03:10")
	f.expect("nightly-20300102030000")
}
