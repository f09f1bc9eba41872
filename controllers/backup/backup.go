// Package backup reconciles Backups: it finds the etcds and Secrets of an installation, runs `etcd backup create` once in a Job, and reports
// what that reports. The operator reads and writes no object of a store itself.
package backup

import (
	"cmp"
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	backupconfig "github.com/atoll-dev/atoll/internal/backup/config"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=backups,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=backups/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=backups/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch

// Reasons of the condition Completed.
const (
	reasonStoreNotReady = "StoreNotReady"
	reasonQueued        = "Queued"
	reasonRunning       = "Running"
	reasonSaved         = "Saved"
	reasonFailed        = "Failed"
	reasonJobDeleted    = "JobDeleted"
)

// NewReconciler returns the reconciler of Backups.
func NewReconciler(config reconcile.Config) *reconcile.Reconciler[*operatorv1alpha1.Backup] {
	return &reconcile.Reconciler[*operatorv1alpha1.Backup]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.Backup]{
			Name:       "backup",
			For:        &operatorv1alpha1.Backup{},
			List:       &operatorv1alpha1.BackupList{},
			Owns:       []client.Object{&batchv1.Job{}},
			References: []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.BackupStore{}},
		},
		NewScope: func(backup *operatorv1alpha1.Backup, report *status.Report) reconcile.Scope {
			return &scope{config: config, report: report, backup: backup}
		},
	}
}

// scope is one Backup during a reconcile.
type scope struct {
	config reconcile.Config
	report *status.Report
	backup *operatorv1alpha1.Backup

	root      *operatorv1alpha1.RootShard // nil if there is no installation
	reference status.Result
	store     *operatorv1alpha1.BackupStore // nil while it does not exist
	job       *batchv1.Job                  // nil before it is created
	outcome   Outcome
}

// IsFinal reports whether a Backup has ended. What happens to the installation or the Job later does not change it.
func IsFinal(backup *operatorv1alpha1.Backup) bool {
	return backup.Status.Phase == operatorv1alpha1.BackupPhaseCompleted || backup.Status.Phase == operatorv1alpha1.BackupPhaseFailed
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) (err error) {
	if IsFinal(s.backup) {
		return nil
	}
	ref := operatorv1alpha1.RootShardReference{Reference: &s.backup.Spec.RootShardRef}
	if s.root, s.reference, err = dependencies.ResolveRootShard(ctx, s.config.Cluster, s.backup.Namespace, ref); err != nil {
		return err
	}
	if s.store, err = apply.Get[operatorv1alpha1.BackupStore](ctx, s.config.Cluster, s.backup.Namespace, s.backup.Spec.StoreRef.Name); err != nil {
		return err
	}
	if s.job, err = apply.Get[batchv1.Job](ctx, s.config.Cluster, s.backup.Namespace, jobName(s.backup)); err != nil || s.job == nil {
		return err
	}
	s.outcome, err = ReadOutcome(ctx, s.config.Cluster, s.job, "raise maxUploadRate of the store, or find what is slow, the store or an etcd")
	return err
}

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	if IsFinal(s.backup) {
		return nil
	}
	return []reconcile.Step{
		{Name: "resolve the references", Run: s.resolve},
		{Name: "take its turn", Run: s.takeTurn},
		{Name: "run the Job", Run: s.run},
	}
}

// resolve waits for the installation and the store, unless the Job runs already.
func (s *scope) resolve(context.Context) error {
	if s.job != nil {
		return nil
	}
	const condition = operatorv1alpha1.ConditionCompleted
	s.report.Set(s.reference)
	switch {
	case s.backup.Status.StartedAt != nil:
		s.report.Set(s.lost(reasonJobDeleted, "Job "+jobName(s.backup)))
	case s.reference.State != status.Satisfied:
	case s.store == nil:
		s.report.Set(status.Wait(condition, operatorv1alpha1.ReasonReferenceNotFound,
			"BackupStore %s does not exist in namespace %s: create it", s.backup.Spec.StoreRef.Name, s.backup.Namespace))
	default:
		ready := meta.FindStatusCondition(s.store.Status.Conditions, operatorv1alpha1.ConditionReady)
		if ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == s.store.Generation {
			return nil
		}
		s.report.Set(status.Wait(condition, reasonStoreNotReady, "BackupStore %s is not ready: see its conditions", s.store.Name))
	}
	return reconcile.ErrStop
}

// takeTurn lets one Backup of an installation run at a time: each holds pages of all its etcds.
func (s *scope) takeTurn(ctx context.Context) error {
	if s.job != nil {
		return nil
	}
	list := &operatorv1alpha1.BackupList{}
	if err := s.config.Cluster.List(ctx, list, client.InNamespace(s.backup.Namespace)); err != nil {
		return err
	}
	for _, other := range list.Items {
		if other.UID != s.backup.UID && other.Spec.RootShardRef.Name == s.backup.Spec.RootShardRef.Name && !IsFinal(&other) && isBefore(&other, s.backup) {
			s.report.Set(status.Wait(operatorv1alpha1.ConditionCompleted, reasonQueued, "Backup %s of this installation comes first", other.Name))
			return reconcile.ErrStop
		}
	}
	return nil
}

// isBefore is the order of Backups that have not ended: those that run, then by age. One that waits for anything else than its turn does
// not block others.
func isBefore(a, b *operatorv1alpha1.Backup) bool {
	if a.Status.Phase == operatorv1alpha1.BackupPhaseRunning {
		return true
	}
	if a.Status.Phase != "" && !waitsForTurn(a, b) {
		return false
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// waitsForTurn reports whether a Backup waits for its turn, or for the store of another one, whose turn it is: both begin when that store
// becomes ready.
func waitsForTurn(backup, other *operatorv1alpha1.Backup) bool {
	completed := meta.FindStatusCondition(backup.Status.Conditions, operatorv1alpha1.ConditionCompleted)
	if completed == nil {
		return false
	}
	waitsForStore := completed.Reason == reasonStoreNotReady || completed.Reason == operatorv1alpha1.ReasonReferenceNotFound
	return completed.Reason == reasonQueued || waitsForStore && backup.Spec.StoreRef == other.Spec.StoreRef
}

func (s *scope) run(ctx context.Context) error {
	const condition = operatorv1alpha1.ConditionCompleted
	if s.job == nil {
		input, err := s.input(ctx)
		if err != nil {
			return err
		}
		for _, object := range []client.Object{input.configMap, input.job} {
			if err := s.config.Cluster.ApplyObject(ctx, condition, object); err != nil {
				return s.report.SetResult(status.Result{}, err)
			}
		}
		s.job = input.job
		s.job.CreationTimestamp = metav1.NewTime(s.config.Now())
	}
	// Whichever reconcile has created the Job: the status that one wrote may be lost.
	if s.backup.Status.StartedAt == nil {
		s.backup.Status.StartedAt = &s.job.CreationTimestamp
	}
	switch {
	case s.outcome.Lost:
		s.report.Set(s.lost(reasonFailed, "the pod of Job "+jobName(s.backup)))
	case s.outcome.Failed:
		s.report.Set(status.Stall(condition, reasonFailed, "%s. Correct the cause, and create another Backup", s.outcome.Message))
	case s.outcome.Result != nil:
		s.setResult(s.outcome.Result)
		s.report.Set(status.OK(condition, reasonSaved, "saved %d shards with %d logical clusters, and %d Secrets",
			s.outcome.Result.Shards, s.outcome.Result.LogicalClusters, s.outcome.Result.Secrets))
	default:
		s.report.Set(status.Wait(condition, reasonRunning, "Job %s saves the installation%s", jobName(s.backup), s.outcome.Message))
	}
	return nil
}

// lost ends a Backup whose result is unknown.
func (s *scope) lost(reason, what string) status.Result {
	return status.Stall(operatorv1alpha1.ConditionCompleted, reason, "%s is gone, and its result with it: look for folders %s-* with manifest.json in the store, or create another Backup",
		what, ID(s.backup))
}

func (s *scope) setResult(result *backupconfig.Result) {
	out := &s.backup.Status
	out.BackupID, out.DestinationPath = result.BackupID, result.DestinationPath
	started, stopped := metav1.NewTime(result.StartedAt), metav1.NewTime(result.StoppedAt)
	out.StartedAt, out.StoppedAt = &started, &stopped
	out.Duration = result.StoppedAt.Sub(result.StartedAt).Round(time.Second / 10).String()
	out.Size, out.SnapshotSize = roundUp(result.Size), roundUp(result.SnapshotSize)
	out.Shards, out.LogicalClusters, out.Secrets, out.ManifestDigest = int32(result.Shards), result.LogicalClusters, int32(result.Secrets), result.ManifestDigest
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.backup.Status
	out.ObservedGeneration = s.backup.Generation
	if IsFinal(s.backup) {
		return
	}
	out.Conditions = s.report.Conditions(out.Conditions, s.backup.Generation)
	completed := s.report.Get(operatorv1alpha1.ConditionCompleted)
	switch {
	case completed.State == status.Satisfied && completed.Type != "":
		out.Phase = operatorv1alpha1.BackupPhaseCompleted
	case completed.Reason == reasonFailed || completed.Reason == reasonJobDeleted:
		out.Phase = operatorv1alpha1.BackupPhaseFailed
	case out.StartedAt != nil:
		out.Phase = operatorv1alpha1.BackupPhaseRunning
	default:
		out.Phase = operatorv1alpha1.BackupPhasePending
	}
}
