// Package restoredrill reconciles RestoreDrills: it restores the last Backup of an installation into a namespace that exists only for that,
// measures how long it takes until the shards serve it, and deletes the namespace. Package restore restores; the packages of the other kinds
// run the copy.
package restoredrill

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/schedule"
	"github.com/atoll-dev/atoll/controllers/status"
)

// The permissions to create a namespace and its objects are not in the role of the operator: config/restore-drill and the chart add them.
// +kubebuilder:rbac:groups=operator.kcp.io,resources=restoredrills,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=restoredrills/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=restoredrills/finalizers,verbs=update

// Reasons of conditions.
const (
	reasonNotEnabled  = "NotEnabled"
	reasonInvalidSpec = "InvalidSpec"
	reasonSuspended   = "Suspended"
	reasonNoneDue     = "NoneDue"
	reasonSkipped     = "Skipped"
	reasonWaiting     = "Waiting"
	reasonRunning     = "Running"
	reasonDeleting    = "DeletingNamespace"
	reasonSucceeded   = "Succeeded"
	reasonFailed      = "Failed"
	reasonOverdue     = "Overdue"
)

const (
	// interval is the time between two reconciliations of a drill that runs: objects in its namespace are not watched.
	interval = 5 * time.Second
	// waitInterval is the time between two reconciliations while another drill uses the namespace.
	waitInterval = 30 * time.Second
	// maxRequeue bounds the sleep until the next time: timers do not notice that a clock was set.
	maxRequeue     = 5 * time.Minute
	defaultTimeout = time.Hour
)

// Reader reads what shards serve.
type Reader interface {
	// CountLogicalClusters counts all logical clusters of a shard.
	CountLogicalClusters(ctx context.Context, shard desired.Shard) (int64, error)
}

// NewReconciler returns the reconciler of RestoreDrills. Drills use the namespace of this name; an empty name disables them.
func NewReconciler(config reconcile.Config, namespace string, reader Reader) *reconcile.Reconciler[*operatorv1alpha1.RestoreDrill] {
	return &reconcile.Reconciler[*operatorv1alpha1.RestoreDrill]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.RestoreDrill]{
			Name:       "restoredrill",
			For:        &operatorv1alpha1.RestoreDrill{},
			List:       &operatorv1alpha1.RestoreDrillList{},
			References: []client.Object{&operatorv1alpha1.Backup{}},
		},
		NewScope: func(object *operatorv1alpha1.RestoreDrill, report *status.Report) reconcile.Scope {
			return &scope{config: config, reader: reader, report: report, object: object, name: namespace, now: config.Now()}
		},
	}
}

// scope is one RestoreDrill during a reconcile.
type scope struct {
	config reconcile.Config
	reader Reader
	report *status.Report
	object *operatorv1alpha1.RestoreDrill
	name   string // of the namespace of drills; "" if there are none
	now    time.Time

	schedule *schedule.Schedule          // nil while no drills are started
	backup   *operatorv1alpha1.Backup    // the last one that can be restored, or nil
	root     *operatorv1alpha1.RootShard // the copies in the namespace of the drill
	shards   []operatorv1alpha1.Shard
	state    state
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) error {
	spec, out := &s.object.Spec, &s.object.Status
	list := &operatorv1alpha1.BackupList{}
	if err := s.config.Cluster.List(ctx, list, client.InNamespace(s.object.Namespace)); err != nil {
		return err
	}
	s.backup = lastBackup(spec, list.Items)
	if out.Active != nil { // the name in a flag may have changed since
		s.name = out.Active.Namespace
	}
	s.state = state{
		now: s.now, uid: string(s.object.UID), deleting: s.object.DeletionTimestamp != nil, hasBackup: s.backup != nil, timeout: defaultTimeout, name: s.name, run: out.Active,
	}
	if spec.Timeout != nil {
		s.state.timeout = spec.Timeout.Duration
	}
	if s.name == "" {
		return nil
	}
	return s.observeNamespace(ctx)
}

// lastBackup returns the newest Backup that can be restored, or nil.
func lastBackup(spec *operatorv1alpha1.RestoreDrillSpec, backups []operatorv1alpha1.Backup) *operatorv1alpha1.Backup {
	var out *operatorv1alpha1.Backup
	for i := range backups {
		b := &backups[i]
		switch {
		case b.Spec != spec.BackupSpec, b.Status.Phase != operatorv1alpha1.BackupPhaseCompleted, b.Status.BackupID == "", b.Status.StoppedAt == nil:
		case metav1.HasAnnotation(b.ObjectMeta, operatorv1alpha1.AnnotationRemoveBackup):
		case spec.BackupScheduleRef != nil && b.Labels[operatorv1alpha1.LabelBackupSchedule] != spec.BackupScheduleRef.Name:
		case out == nil || out.Status.StoppedAt.Before(b.Status.StoppedAt):
			out = b
		}
	}
	return out
}

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	return []reconcile.Step{
		{Name: "parse the schedule", Run: s.parse},
		{Name: "run the drill", Run: s.act},
		{Name: "compare the last drill with the schedule", Run: s.compare},
	}
}

// FinalizeSteps implements reconcile.Finalizer.
func (s *scope) FinalizeSteps() []reconcile.Step {
	return []reconcile.Step{{Name: "delete the namespace of the drill", Run: s.act}}
}

// parse reads the schedule, and says why no drills are started.
func (s *scope) parse(context.Context) error {
	const condition = operatorv1alpha1.ConditionScheduled
	out, spec := &s.object.Status, &s.object.Spec
	parsed, err := schedule.Parse(spec.Schedule, spec.TimeZone)
	switch {
	case s.name == "":
		s.report.Set(status.Stall(condition, reasonNotEnabled, "this operator has no namespace for drills: start it with --restore-drill-namespace=NAME, and give it the rights of config/restore-drill (value restoreDrills.namespace of the chart)"))
	case err != nil:
		s.report.Set(status.Stall(condition, reasonInvalidSpec, "%v", err))
	case spec.Suspend:
		s.report.Set(status.OK(condition, reasonSuspended, "spec.suspend is set: no drills are started"))
	default:
		s.schedule = &parsed
		if announced := out.NextScheduleTime; announced != nil {
			_, s.state.due = schedule.Due(&announced.Time, s.now)
		}
		if !s.state.due { // the schedule or its time zone may have changed
			out.NextScheduleTime = s.next()
		}
		s.state.due = s.state.due || spec.Immediate && out.LastScheduleTime == nil
		s.reportLast()
		return nil
	}
	out.NextScheduleTime = nil
	return nil
}

// reportLast reports what became of the last time that was due, until another one is.
func (s *scope) reportLast() {
	const condition = operatorv1alpha1.ConditionScheduled
	if before := meta.FindStatusCondition(s.object.Status.Conditions, condition); before != nil && before.Reason == reasonSkipped {
		s.report.Set(status.Warn(condition, reasonSkipped, "%s", before.Message))
		return
	}
	s.report.Set(status.OK(condition, reasonNoneDue, "the next drill is not due yet"))
}

func (s *scope) next() *metav1.Time { return &metav1.Time{Time: s.schedule.Next(s.now)} }

// compare reports whether the last drill has succeeded, and not too long ago.
func (s *scope) compare(context.Context) error {
	const condition = operatorv1alpha1.ConditionCurrent
	out := &s.object.Status
	since := s.object.CreationTimestamp.Time
	if out.LastSuccessfulTime != nil {
		since = out.LastSuccessfulTime.Time
	}
	before := meta.FindStatusCondition(out.Conditions, condition)
	switch run := out.Active; {
	case run != nil && run.Result == operatorv1alpha1.RestoreDrillFailed:
		s.report.Set(status.Stall(condition, reasonFailed, "the drill of Backup %s that began at %s has failed: %s", run.Backup, run.StartedAt.UTC().Format(time.RFC3339), run.Message))
	case out.LastResult == operatorv1alpha1.RestoreDrillFailed && before != nil && before.Reason == reasonFailed:
		s.report.Set(status.Stall(condition, reasonFailed, "%s", before.Message))
	case s.schedule != nil && s.schedule.IsOverdue(since, run != nil, s.now):
		s.report.Set(status.Stall(condition, reasonOverdue, "since %s, two drills or more were due, and none has succeeded: see condition Scheduled", since.UTC().Format(time.RFC3339)))
	case out.LastResult == operatorv1alpha1.RestoreDrillSucceeded:
		s.report.Set(status.OK(condition, reasonSucceeded, "the last drill has restored the installation in %s, to a state of %s before", out.RecoveryTime, cmp.Or(out.DataLoss, "0s")))
	default:
		s.report.Set(status.OK(condition, reasonNoneDue, "no drill has ended yet, and none is overdue"))
	}
	return nil
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.object.Status
	out.ObservedGeneration = s.object.Generation
	out.History = limit(out.History, &s.object.Spec)
	out.Conditions = s.report.Conditions(out.Conditions, s.object.Generation)
}

// limit returns the drills that a history keeps, of those that are newest first.
func limit(history []operatorv1alpha1.RestoreDrillRun, spec *operatorv1alpha1.RestoreDrillSpec) []operatorv1alpha1.RestoreDrillRun {
	left := map[operatorv1alpha1.RestoreDrillResult]int32{operatorv1alpha1.RestoreDrillSucceeded: 3, operatorv1alpha1.RestoreDrillFailed: 1}
	if n := spec.SuccessfulDrillsHistoryLimit; n != nil {
		left[operatorv1alpha1.RestoreDrillSucceeded] = *n
	}
	if n := spec.FailedDrillsHistoryLimit; n != nil {
		left[operatorv1alpha1.RestoreDrillFailed] = *n
	}
	return slices.DeleteFunc(slices.Clone(history), func(run operatorv1alpha1.RestoreDrillRun) bool {
		left[run.Result]--
		return left[run.Result] < 0
	})
}

// act does what is decided, and reports it.
func (s *scope) act(ctx context.Context) error {
	const condition = operatorv1alpha1.ConditionScheduled
	out := &s.object.Status
	decided := decide(s.state)
	if run := out.Active; run != nil && run.Result == "" && decided.message != "" {
		run.Message = shortened(decided.message)
	}
	switch decided.action {
	case actionIdle, actionSkip, actionWait: // below
	default:
		s.report.RequeueWithin(interval)
	}
	switch decided.action {
	case actionIdle:
		if s.schedule != nil && out.NextScheduleTime != nil {
			s.report.RequeueWithin(min(max(out.NextScheduleTime.Sub(s.now), time.Second), maxRequeue))
		}
	case actionSkip:
		s.report.RequeueWithin(waitInterval)
		s.report.Set(status.Warn(condition, reasonSkipped, "no drill was started: %s", decided.message))
		out.NextScheduleTime = s.next()
	case actionStart:
		return s.start(ctx)
	case actionPostpone:
		out.NextScheduleTime, out.Active = &metav1.Time{Time: s.now}, nil
		s.report.Set(status.Warn(condition, reasonWaiting, "%s", decided.message))
	case actionCreateNamespace:
		return s.createNamespace(ctx)
	case actionRecordNamespace:
		out.Active.NamespaceUID = s.state.namespace.uid
	case actionLeaveNamespace:
		return s.leaveNamespace(ctx, decided.message)
	case actionReadBackup:
		return s.readBackup(ctx)
	case actionRestore:
		return s.restore(ctx)
	case actionCheck:
		return s.check(ctx)
	case actionFail:
		s.end(operatorv1alpha1.RestoreDrillFailed, decided.message)
	case actionSucceed:
		s.end(operatorv1alpha1.RestoreDrillSucceeded, "")
	case actionDeleteNamespace:
		return s.deleteNamespace(ctx, decided.message)
	case actionWait:
		s.reportWait(decided.message)
	case actionRecord:
		out.History = slices.Insert(out.History, 0, *out.Active)
		out.Active = nil
	case actionRelease:
		if err := s.config.Cluster.SetFinalizer(ctx, s.object, operatorv1alpha1.FinalizerRestoreDrill, false); err != nil {
			return err
		}
		return reconcile.ErrFinalized
	}
	if run := out.Active; run != nil && run.Result == "" {
		s.reportRun(run)
	}
	return nil
}

// reportRun reports a drill that runs.
func (s *scope) reportRun(run *operatorv1alpha1.RestoreDrillRun) {
	s.report.Set(status.OK(operatorv1alpha1.ConditionScheduled, reasonRunning, "a drill restores Backup %s since %s: %s", run.Backup, run.StartedAt.UTC().Format(time.RFC3339), run.Message))
}

// reportWait reports what has to end before a drill can begin.
func (s *scope) reportWait(message string) {
	if s.object.Status.Active == nil && !s.state.owns() {
		s.report.RequeueWithin(waitInterval)
		s.report.Set(status.Warn(operatorv1alpha1.ConditionScheduled, reasonWaiting, "a drill is due: %s", message))
		return
	}
	s.report.RequeueWithin(interval)
	s.report.Set(status.Warn(operatorv1alpha1.ConditionScheduled, reasonDeleting, "the drill has ended: %s", message))
}

// start records a run, and announces the next one. Its namespace is created when that is written.
func (s *scope) start(ctx context.Context) error {
	if err := s.config.Cluster.SetFinalizer(ctx, s.object, operatorv1alpha1.FinalizerRestoreDrill, true); err != nil {
		return err
	}
	started := metav1.NewTime(s.now)
	out := &s.object.Status
	out.Active = &operatorv1alpha1.RestoreDrillRun{
		Backup: s.backup.Name, BackupID: s.backup.Status.BackupID, ManifestDigest: s.backup.Status.ManifestDigest, Namespace: s.name, StartedAt: started, Message: "it begins",
	}
	out.LastScheduleTime, out.NextScheduleTime = &started, s.next()
	s.reportRun(out.Active)
	return nil
}

// end records the result of the run.
func (s *scope) end(result operatorv1alpha1.RestoreDrillResult, message string) {
	stopped := metav1.NewTime(s.now)
	out := &s.object.Status
	run := out.Active
	run.Result, run.Message, run.StoppedAt, out.LastResult = result, shortened(message), &stopped, result
	if result == operatorv1alpha1.RestoreDrillSucceeded {
		run.RecoveryTime = rounded(stopped.Sub(run.StartedAt.Time))
		out.LastSuccessfulTime, out.RecoveryTime, out.DataLoss = &stopped, run.RecoveryTime, run.DataLoss
	}
	s.report.Set(status.OK(operatorv1alpha1.ConditionScheduled, reasonDeleting, "the drill has ended, and its namespace %s is deleted", run.Namespace))
}

func rounded(d time.Duration) string { return max(d, 0).Round(time.Second).String() }

// shortened fits the schema of a message.
func shortened(message string) string { return status.Truncate(message, 2000) }
