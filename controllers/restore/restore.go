// Package restore reconciles Restores: it reads the manifest and the Secrets of a backup, runs `etcd backup restore` in a Job for each member of
// each etcd of a new installation, or of one shard, and removes the mark of the restored shards when a person releases them. It replaces the data of
// one shard only if its volumes are empty or the user discards them, and never that of an installation. For a Restore of one workspace, it runs
// `etcd backup restore-workspace` beside the installation, whose shard does the work.
package restore

import (
	"context"
	"crypto/tls"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/shardcompare"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=restores,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=restores/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=restores/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=create;delete

// Reasons of the condition Completed. Those after reasonRestored are final, and nothing of the installation was changed unless startedAt is set.
const (
	reasonStoreNotReady  = "StoreNotReady"
	reasonNotAnnotated   = "NotAnnotated"
	reasonShardsDiffer   = "ShardsDiffer"
	reasonMigrating      = "Migrating"
	reasonRunning        = "Running"
	reasonRestored       = "Restored"
	reasonBackupUnusable = "BackupUnusable"
	reasonHasData        = "InstallationHasData"
	reasonNotSupported   = "NotSupported"
	reasonOtherVersion   = "OtherVersion"
	reasonOtherOwner     = "OtherOwner"
	reasonSecretsDiffer  = "SecretsDiffer"
	reasonNotOfDrill     = "NotOfDrill"
	reasonNotRunning     = "NotRunning"
	reasonFailed         = "Failed"
)

const (
	// retryInterval is the time between two attempts to read the store, or to release a shard.
	retryInterval = 15 * time.Second
	// readTimeout bounds what one reconcile reads of the store.
	readTimeout = time.Minute
)

// Etcd is a client of the etcds of shards. Package etcdclient implements it.
type Etcd interface {
	// Credentials reads the credentials of a client from the data of a Secret.
	Credentials(data map[string][]byte) (*tls.Config, error)
	// DeleteKey deletes a key. One that does not exist is no error.
	DeleteKey(ctx context.Context, endpoints []string, credentials *tls.Config, key string) error
	// Observe adds the responses of the members to the facts.
	Observe(ctx context.Context, endpoints []etcd.Endpoint, credentials *tls.Config, facts *etcd.Facts)
	// Revision returns the revision of the last write.
	Revision(ctx context.Context, endpoints []string, credentials *tls.Config) (int64, error)
}

// Servers sends requests to the servers of an installation. Package shardclient implements it.
type Servers interface {
	// Migrations returns the names of the migrations from or to a shard that have not ended.
	Migrations(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) ([]string, error)
	// CompareShards compares the Workspaces and logical clusters of all shards of an installation, as far as they concern the one that is named.
	CompareShards(ctx context.Context, root *operatorv1alpha1.RootShard, shards []desired.Shard, restored string, before time.Time) (shardcompare.Result, error)
}

// NewReconciler returns the reconciler of Restores.
func NewReconciler(config reconcile.Config, etcds Etcd, servers Servers) *reconcile.Reconciler[*operatorv1alpha1.Restore] {
	return &reconcile.Reconciler[*operatorv1alpha1.Restore]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.Restore]{
			Name:       "restore",
			For:        &operatorv1alpha1.Restore{},
			List:       &operatorv1alpha1.RestoreList{},
			Owns:       []client.Object{&batchv1.Job{}},
			References: []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.Shard{}, &operatorv1alpha1.BackupStore{}},
			Files:      []client.Object{&corev1.Secret{}},
		},
		NewScope: func(restore *operatorv1alpha1.Restore, report *status.Report) reconcile.Scope {
			return &scope{config: config, etcds: etcds, servers: servers, report: report, restore: restore}
		},
	}
}

// scope is one Restore during a reconcile.
type scope struct {
	config  reconcile.Config
	etcds   Etcd
	servers Servers
	report  *status.Report
	restore *operatorv1alpha1.Restore

	root  *operatorv1alpha1.RootShard   // nil while it does not exist
	store *operatorv1alpha1.BackupStore // nil while it does not exist

	installation *installation // of the RootShard; nil while it does not exist
	isOfDrill    bool          // whether the namespace is that of a drill
	hasStarted   bool          // whether the API server has startedAt
}

// isFailed reports whether a Restore has ended without success.
func isFailed(restore *operatorv1alpha1.Restore) bool {
	return restore.Status.Phase == operatorv1alpha1.RestorePhaseFailed
}

func isCompleted(restore *operatorv1alpha1.Restore) bool {
	return restore.Status.Phase == operatorv1alpha1.RestorePhaseCompleted
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) (err error) {
	if isFailed(s.restore) {
		return nil
	}
	s.hasStarted = s.restore.Status.StartedAt != nil
	namespace := s.restore.Namespace
	if s.restore.Spec.Isolated {
		object, err := apply.Get[corev1.Namespace](ctx, s.config.Cluster, "", namespace)
		if err != nil {
			return err
		}
		s.isOfDrill = object != nil && object.Labels[operatorv1alpha1.LabelRestoreDrill] != ""
	}
	if s.root, err = apply.Get[operatorv1alpha1.RootShard](ctx, s.config.Cluster, namespace, s.restore.Spec.RootShardRef.Name); err != nil {
		return err
	}
	if s.store, err = apply.Get[operatorv1alpha1.BackupStore](ctx, s.config.Cluster, namespace, s.restore.Spec.StoreRef.Name); err != nil {
		return err
	}
	if s.root == nil {
		return nil
	}
	s.installation, err = observeInstallation(ctx, s.config.Cluster, s.root, s.restore.Spec.Shard)
	return err
}

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	switch {
	case isFailed(s.restore):
		return nil
	case s.restore.Spec.Workspace != nil:
		return s.workspaceSteps()
	case isCompleted(s.restore):
		return []reconcile.Step{{Name: "release the shards", Run: s.release}, {Name: "compare the shards", Run: s.compareShards}}
	}
	return []reconcile.Step{
		{Name: "check the consent", Run: s.checkConsent},
		{Name: "check the installation", Run: s.check},
		{Name: "read the backup", Run: s.readBackup},
		{Name: "empty the shard", Run: s.emptyShard},
		{Name: "restore the etcds", Run: s.restoreEtcds},
	}
}

// stop reports a result, and ends the reconcile.
func (s *scope) stop(result status.Result) error {
	s.report.Set(result)
	return reconcile.ErrStop
}

func (s *scope) wait(reason, format string, args ...any) error {
	return s.stop(status.Wait(operatorv1alpha1.ConditionCompleted, reason, format, args...))
}

// refuse ends the Restore.
func (s *scope) refuse(reason, format string, args ...any) error {
	return s.stop(status.Stall(operatorv1alpha1.ConditionCompleted, reason, format, args...))
}

// check waits for the objects of the installation, and refuses one that cannot be restored.
func (s *scope) check(ctx context.Context) error {
	spec := &s.restore.Spec
	switch {
	case spec.Isolated && !s.isOfDrill:
		return s.refuse(reasonNotOfDrill, "namespace %s is not that of a RestoreDrill, and isolated is for these: create a RestoreDrill, or another Restore without isolated", s.restore.Namespace)
	case s.root == nil && spec.Shard != nil:
		return s.wait(operatorv1alpha1.ReasonReferenceNotFound, "RootShard %s does not exist in namespace %s: a Restore with shard is for an installation that runs", spec.RootShardRef.Name, s.restore.Namespace)
	case s.root == nil:
		return s.wait(operatorv1alpha1.ReasonReferenceNotFound, "RootShard %s does not exist in namespace %s: create it with the annotation %s: %s",
			spec.RootShardRef.Name, s.restore.Namespace, operatorv1alpha1.AnnotationRestore, s.restore.Name)
	case s.store == nil:
		return s.wait(operatorv1alpha1.ReasonReferenceNotFound, "BackupStore %s does not exist in namespace %s: create it", spec.StoreRef.Name, s.restore.Namespace)
	case s.config.ClusterID == "":
		return s.wait(reasonStoreNotReady, "the operator does not know this Kubernetes cluster")
	}
	if ready := meta.FindStatusCondition(s.store.Status.Conditions, operatorv1alpha1.ConditionReady); s.restore.Status.StartedAt == nil &&
		(ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != s.store.Generation) {
		return s.wait(reasonStoreNotReady, "BackupStore %s is not ready: see its conditions", s.store.Name)
	}
	if spec.Shard != nil {
		return s.checkShard(ctx)
	}
	if message := s.installation.started; message != "" {
		return s.refuse(reasonHasData, "%s: a Restore replaces no data. Delete RootShard %s with its Shards and volumes, and create it with the annotation %s and the name of another Restore",
			message, s.root.Name, operatorv1alpha1.AnnotationRestore)
	}
	if s.root.Annotations[operatorv1alpha1.AnnotationRestore] != s.restore.Name {
		return s.wait(reasonNotAnnotated, "RootShard %s does not wait for this Restore: create it with the annotation %s: %s", s.root.Name, operatorv1alpha1.AnnotationRestore, s.restore.Name)
	}
	if message := s.installation.unsupported; message != "" {
		return s.refuse(reasonNotSupported, "%s", message)
	}
	return nil
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.restore.Status
	out.ObservedGeneration = s.restore.Generation
	if isFailed(s.restore) {
		return
	}
	if isCompleted(s.restore) { // the release changes its own condition only
		if before := meta.FindStatusCondition(out.Conditions, operatorv1alpha1.ConditionCompleted); before != nil {
			s.report.Set(status.OK(before.Type, before.Reason, "%s", before.Message))
		}
		out.Conditions = s.report.Conditions(out.Conditions, s.restore.Generation)
		return
	}
	out.Conditions = s.report.Conditions(out.Conditions, s.restore.Generation)
	completed := s.report.Get(operatorv1alpha1.ConditionCompleted)
	switch {
	case completed.Type == "":
	case completed.State == status.Satisfied:
		out.Phase = operatorv1alpha1.RestorePhaseCompleted
	case completed.State == status.Stalled:
		out.Phase = operatorv1alpha1.RestorePhaseFailed
	case out.StartedAt != nil:
		out.Phase = operatorv1alpha1.RestorePhaseRunning
	default:
		out.Phase = operatorv1alpha1.RestorePhasePending
	}
}
