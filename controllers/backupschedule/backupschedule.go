// Package backupschedule reconciles BackupSchedules: it creates Backups at given times, and removes old ones from the store and from the
// cluster. Package backup runs them.
package backupschedule

import (
	"cmp"
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/backup"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/schedule"
	"github.com/atoll-dev/atoll/controllers/status"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=backupschedules,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=backupschedules/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=backups,verbs=create;patch;delete

// Reasons of conditions.
const (
	reasonInvalidSpec = "InvalidSpec"
	reasonSuspended   = "Suspended"
	reasonNoneDue     = "NoneDue"
	reasonCreated     = "Created"
	reasonSkipped     = "Skipped"
	reasonRejected    = "Rejected"
	reasonCompleted   = "Completed"
	reasonOverdue     = "Overdue"
	reasonEnforced    = "Enforced"
	reasonMoved       = "Moved"
	reasonNotReleased = "RestoreNotReleased"
)

// maxRequeue bounds the sleep until the next time: timers do not notice that a clock was set.
const maxRequeue = 5 * time.Minute

// NewReconciler returns the reconciler of BackupSchedules.
func NewReconciler(config reconcile.Config) *reconcile.Reconciler[*operatorv1alpha1.BackupSchedule] {
	return &reconcile.Reconciler[*operatorv1alpha1.BackupSchedule]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.BackupSchedule]{
			Name:       "backupschedule",
			For:        &operatorv1alpha1.BackupSchedule{},
			List:       &operatorv1alpha1.BackupScheduleList{},
			References: []client.Object{&operatorv1alpha1.Backup{}, &operatorv1alpha1.BackupStore{}, &operatorv1alpha1.Restore{}},
		},
		NewScope: func(object *operatorv1alpha1.BackupSchedule, report *status.Report) reconcile.Scope {
			return &scope{config: config, report: report, object: object, now: config.Now()}
		},
	}
}

// scope is one BackupSchedule during a reconcile.
type scope struct {
	config reconcile.Config
	report *status.Report
	object *operatorv1alpha1.BackupSchedule
	now    time.Time

	schedule schedule.Schedule
	backups  []operatorv1alpha1.Backup // of this schedule, newest first
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) error {
	list := &operatorv1alpha1.BackupList{}
	if err := s.config.Cluster.List(ctx, list, client.InNamespace(s.object.Namespace), client.MatchingLabels{operatorv1alpha1.LabelBackupSchedule: s.object.Name}); err != nil {
		return err
	}
	s.backups = slices.DeleteFunc(list.Items, func(b operatorv1alpha1.Backup) bool { return !s.owns(&b) })
	slices.SortFunc(s.backups, func(a, b operatorv1alpha1.Backup) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	return nil
}

// owns reports whether a Backup is of this schedule.
func (s *scope) owns(b *operatorv1alpha1.Backup) bool {
	return b.Labels[operatorv1alpha1.LabelBackupSchedule] == s.object.Name && b.Spec == s.object.Spec.BackupSpec
}

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	return []reconcile.Step{
		{Name: "parse the schedule", Run: s.parse},
		{Name: "create the Backup that is due", Run: s.create},
		{Name: "compare the last success with the schedule", Run: s.compare},
		{Name: "remove old Backups", Run: s.retain},
	}
}

func (s *scope) parse(context.Context) (err error) {
	const condition = operatorv1alpha1.ConditionScheduled
	out := &s.object.Status
	if s.object.Spec.Suspend {
		s.report.Set(status.OK(condition, reasonSuspended, "spec.suspend is set: Backups are neither created nor removed"))
	} else if s.schedule, err = schedule.Parse(s.object.Spec.Schedule, s.object.Spec.TimeZone); err != nil {
		s.report.Set(status.Stall(condition, reasonInvalidSpec, "%v", err))
	} else {
		return nil
	}
	out.NextScheduleTime = nil
	s.setSuccess()
	s.report.RemoveCondition(operatorv1alpha1.ConditionCurrent)
	s.report.RemoveCondition(operatorv1alpha1.ConditionRetentionEnforced)
	return reconcile.ErrStop
}

func (s *scope) create(ctx context.Context) error {
	out := &s.object.Status
	slot, isDue := schedule.Due(timeOf(out.NextScheduleTime), s.now)
	if s.object.Spec.Immediate && out.LastBackup == "" && len(s.backups) == 0 {
		slot, isDue = s.object.CreationTimestamp.Time, true
	}
	if isDue {
		if err := s.createFor(ctx, slot); err != nil {
			return err
		}
	} else {
		s.reportLast()
	}
	if s.report.Get(operatorv1alpha1.ConditionScheduled).Reason == reasonRejected { // that one is tried again, after the interval of what is stalled
		return nil
	}
	out.NextScheduleTime = &metav1.Time{Time: s.schedule.Next(s.now)}
	s.report.RequeueWithin(min(max(out.NextScheduleTime.Sub(s.now), time.Second), maxRequeue))
	return nil
}

// createFor creates the Backup of a time. Its name is made from the time, so that another operator, or one that has lost what it wrote into
// the status, does not create a second one.
func (s *scope) createFor(ctx context.Context, slot time.Time) error {
	const condition = operatorv1alpha1.ConditionScheduled
	at := slot.UTC().Format(time.RFC3339)
	object := &operatorv1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.object.Name + "-" + slot.UTC().Format("20060102150405"), Namespace: s.object.Namespace,
			Labels: map[string]string{operatorv1alpha1.LabelBackupSchedule: s.object.Name},
		},
		Spec: s.object.Spec.BackupSpec,
	}
	for i := range s.backups {
		if other := &s.backups[i]; !backup.IsFinal(other) && other.Name != object.Name {
			s.report.Set(status.Warn(condition, reasonSkipped, "the Backup that was due at %s was not created: Backup %s of this schedule has not ended", at, other.Name))
			return nil
		}
	}
	err := s.config.Cluster.Create(ctx, object, client.FieldOwner(apply.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		existing, err := apply.Get[operatorv1alpha1.Backup](ctx, s.config.Cluster, object.Namespace, object.Name)
		if err != nil {
			return err
		}
		switch {
		case existing == nil: // the cache has not seen it
		case !s.owns(existing):
			s.report.Set(status.Warn(condition, reasonSkipped, "the Backup that was due at %s was not created: Backup %s exists, and is not of this schedule", at, object.Name))
			return nil
		default:
			object = existing
		}
	} else if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		s.report.Set(status.Stall(condition, reasonRejected, "the API server rejects Backup %s: %v", object.Name, err))
		return nil
	} else if err != nil {
		return err
	}
	created := object.CreationTimestamp
	if created.IsZero() {
		created = metav1.NewTime(s.now)
	}
	out := &s.object.Status
	out.LastBackup, out.LastScheduleTime = object.Name, &created
	if !slices.ContainsFunc(s.backups, func(b operatorv1alpha1.Backup) bool { return b.Name == object.Name }) {
		s.backups = slices.Insert(s.backups, 0, *object)
	}
	s.report.Set(status.OK(condition, reasonCreated, "created Backup %s", object.Name))
	return nil
}

// reportLast reports what became of the last time that was due.
func (s *scope) reportLast() {
	const condition = operatorv1alpha1.ConditionScheduled
	before := meta.FindStatusCondition(s.object.Status.Conditions, condition)
	switch {
	case before != nil && before.Reason == reasonSkipped:
		s.report.Set(status.Warn(condition, reasonSkipped, "%s", before.Message))
	case before != nil && before.Reason == reasonCreated:
		s.report.Set(status.OK(condition, reasonCreated, "%s", before.Message))
	default:
		s.report.Set(status.OK(condition, reasonNoneDue, "the next Backup is not due yet"))
	}
}

// setSuccess finds the last Backup that was completed, or nil.
func (s *scope) setSuccess() *operatorv1alpha1.Backup {
	at := slices.IndexFunc(s.backups, func(b operatorv1alpha1.Backup) bool {
		return b.Status.Phase == operatorv1alpha1.BackupPhaseCompleted && !metav1.HasAnnotation(b.ObjectMeta, operatorv1alpha1.AnnotationRemoveBackup)
	})
	if at < 0 {
		return nil
	}
	last := &s.backups[at]
	out := &s.object.Status
	if stopped := last.Status.StoppedAt; stopped != nil && (out.LastSuccessfulTime == nil || out.LastSuccessfulTime.Before(stopped)) {
		out.LastSuccessfulTime = stopped
	}
	return last
}

func (s *scope) compare(context.Context) error {
	const condition = operatorv1alpha1.ConditionCurrent
	last, since := s.setSuccess(), s.object.CreationTimestamp.Time
	if last != nil {
		since = last.CreationTimestamp.Time
	} else if s.object.Status.LastSuccessfulTime != nil { // it was deleted
		since = s.object.Status.LastSuccessfulTime.Time
	}
	unfinished := slices.ContainsFunc(s.backups, func(b operatorv1alpha1.Backup) bool { return !backup.IsFinal(&b) })
	switch {
	case s.schedule.IsOverdue(since, unfinished, s.now):
		s.report.Set(status.Stall(condition, reasonOverdue, "since %s, two Backups or more were due, and none was completed: see condition Scheduled, and the last Backup (%s)",
			since.UTC().Format(time.RFC3339), cmp.Or(s.object.Status.LastBackup, "none was created")))
	case last != nil:
		s.report.Set(status.OK(condition, reasonCompleted, "Backup %s is completed", last.Name))
	default:
		s.report.Set(status.OK(condition, reasonNoneDue, "no Backup is completed yet, and none is overdue"))
	}
	return nil
}

func timeOf(t *metav1.Time) *time.Time {
	if t == nil {
		return nil
	}
	return &t.Time
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.object.Status
	out.ObservedGeneration = s.object.Generation
	out.Conditions = s.report.Conditions(out.Conditions, s.object.Generation)
}
