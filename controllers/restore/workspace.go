package restore

import (
	"context"
	"path"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/backup"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/backup/config"
)

// workDirectory is where the pod has the snapshot of a shard.
const workDirectory = "/var/lib/restore"

// workspaceSteps restores one workspace of an installation that runs.
func (s *scope) workspaceSteps() []reconcile.Step {
	if isCompleted(s.restore) {
		return []reconcile.Step{{Name: "hold nothing", Run: func(context.Context) error {
			s.holdNothing()
			return nil
		}}}
	}
	return []reconcile.Step{{Name: "check the installation", Run: s.checkWorkspace}, {Name: "restore the workspace", Run: s.restoreWorkspace}}
}

// holdNothing reports that no deletion waits for a release, so that schedules remove Backups again.
func (s *scope) holdNothing() {
	s.report.Set(status.OK(operatorv1alpha1.ConditionReleased, "NothingHeld", "the restore of a workspace holds no deletions back"))
}

// refuseWorkspace ends the Restore.
func (s *scope) refuseWorkspace(reason, format string, args ...any) error {
	s.holdNothing()
	return s.refuse(reason, format, args...)
}

func (s *scope) checkWorkspace(context.Context) error {
	spec := &s.restore.Spec
	switch {
	case s.root == nil:
		return s.wait(operatorv1alpha1.ReasonReferenceNotFound, "RootShard %s does not exist in namespace %s: a workspace is restored into an installation that runs", spec.RootShardRef.Name, s.restore.Namespace)
	case s.store == nil:
		return s.wait(operatorv1alpha1.ReasonReferenceNotFound, "BackupStore %s does not exist in namespace %s: create it", spec.StoreRef.Name, s.restore.Namespace)
	case s.restore.Status.StartedAt != nil: // the Job knows more
		return nil
	case !meta.IsStatusConditionTrue(s.root.Status.Conditions, operatorv1alpha1.ConditionAvailable):
		return s.wait(reasonNotRunning, "RootShard %s is not available: a workspace is restored into an installation that runs. See its conditions", s.root.Name)
	}
	if ready := meta.FindStatusCondition(s.store.Status.Conditions, operatorv1alpha1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != s.store.Generation {
		return s.wait(reasonStoreNotReady, "BackupStore %s is not ready: see its conditions", s.store.Name)
	}
	return nil
}

// restoreWorkspace runs the Job, once: what a shard has refused, it would refuse again.
func (s *scope) restoreWorkspace(ctx context.Context) error {
	const condition = operatorv1alpha1.ConditionCompleted
	out := &s.restore.Status
	configMap, job, err := s.renderWorkspace()
	if err != nil {
		return err
	}
	if out.StartedAt == nil { // one that is deleted later does not run again
		if _, err := s.readIdentities(ctx); err != nil {
			return err
		}
		if err := s.config.Cluster.ApplyObject(ctx, condition, configMap); err != nil {
			return s.report.SetResult(status.Result{}, err)
		}
		if err := apply.CreateMissing(ctx, s.config.Cluster, condition, job); err != nil {
			return s.report.SetResult(status.Result{}, err)
		}
		started := metav1.NewTime(s.config.Now())
		out.StartedAt = &started
	} else {
		existing, err := apply.Get[batchv1.Job](ctx, s.config.Cluster, job.Namespace, job.Name)
		if err != nil {
			return err
		}
		if existing == nil {
			return s.refuseWorkspace(reasonFailed, "Job %s was deleted before its result was read: find out whether workspace %s is back, and create another Restore if it is not", job.Name, s.restore.Spec.Workspace.Path)
		}
		job = existing
	}
	outcome, err := backup.ReadOutcome(ctx, s.config.Cluster, job, "find what is slow, the store or the shard")
	switch path := s.restore.Spec.Workspace.Path; {
	case err != nil:
		return err
	case outcome.Failed && !outcome.Reported:
		return s.refuseWorkspace(reasonFailed, "%s. It was ended before it could report: find out whether workspace %s is back. If not, correct the cause, delete the Restore, and create it again", outcome.Message, path)
	case outcome.Failed:
		return s.refuseWorkspace(reasonFailed, "%s. Correct the cause, delete the Restore, and create it again", outcome.Message)
	case outcome.Result == nil && !outcome.Lost:
		return s.wait(reasonRunning, "Job %s restores workspace %s%s", job.Name, path, outcome.Message)
	case outcome.Result == nil: // a pod has succeeded, and is gone with its result
		s.report.Set(status.OK(condition, reasonRestored, "restored workspace %s", path))
	default:
		taken := metav1.NewTime(outcome.Result.TakenAt)
		out.BackupTakenAt, out.ManifestDigest = &taken, outcome.Result.ManifestDigest
		s.report.Set(status.OK(condition, reasonRestored, "restored workspace %s: %s", path, outcome.Result.Workspace))
	}
	stopped := metav1.NewTime(s.config.Now())
	out.StoppedAt, out.Duration = &stopped, stopped.Sub(out.StartedAt.Time).Round(time.Second).String()
	s.holdNothing()
	return nil
}

// renderWorkspace renders the Job, which reads the store and writes to the etcds of the shards.
func (s *scope) renderWorkspace() (*corev1.ConfigMap, *batchv1.Job, error) {
	files := &backup.Volumes{}
	directory := files.MountConfig(prefix(s.restore))
	cfg := config.Backup{Store: s.storeConfig()}
	files.MountStore(s.store, &cfg.Store)
	identity := files.MountKey(s.restore.Spec.Identity)
	for _, shard := range s.installation.shards {
		connection := etcd.Connection(shard.AsOwner(), shard.Spec().Etcd)
		one := config.Shard{Name: shard.Name(), Endpoints: connection.Servers, Prefix: shard.prefix()}
		if connection.Credentials != "" {
			one.CredentialsDirectory = path.Dir(files.MountKey(operatorv1alpha1.SecretKeyReference{Name: connection.Credentials, Key: corev1.TLSCertKey}))
		}
		cfg.Shards = append(cfg.Shards, one)
	}
	files.Mount(corev1.Volume{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, workDirectory, false)
	content, err := yaml.Marshal(cfg)
	if err != nil {
		return nil, nil, err
	}
	configMap := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: s.meta(prefix(s.restore)), Data: map[string]string{configKey: string(content)}}
	args := []string{
		"--config=" + directory + "/" + configKey, "--id=" + s.restore.Spec.BackupID, "--identity-file=" + identity, "--workspace=" + s.restore.Spec.Workspace.Path, "--work-dir=" + workDirectory,
	}
	if digest := s.restore.Spec.ManifestDigest; digest != "" {
		args = append(args, "--manifest-digest="+digest)
	}
	job := backup.NewJob(s.meta(prefix(s.restore)), backup.Program{
		Image: s.config.Image.With(s.root.Spec.Image), Spec: s.root.Spec.Image, Command: []string{"/etcd", "backup", "restore-workspace"}, Args: args, Files: files,
	})
	job.Spec.BackoffLimit = ptr.To[int32](0)
	return configMap, job, nil
}
