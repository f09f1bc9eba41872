package restore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/backup"
	"github.com/atoll-dev/atoll/controllers/backupstore"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/backup/config"
)

const configKey = "store.yaml"

// prefix of the names of the objects of a Restore. The Jobs of one that was deleted remain until the garbage collector has seen that: their
// results must not become those of a new Restore of the same name.
func prefix(restore *operatorv1alpha1.Restore) string {
	uid, _, _ := strings.Cut(string(restore.UID), "-")
	return restore.Name + "-" + uid
}

// jobName is short enough for the name of a pod, whatever the name of the member is. The Job of a volume claim that was deleted has another
// name than that of the claim which replaces it: that it has succeeded says nothing of the new volume.
func jobName(restore *operatorv1alpha1.Restore, volume etcd.Volume) string {
	digest := sha256.Sum256([]byte(volume.Member + "/" + string(volume.Claim.UID)))
	return prefix(restore) + "-" + hex.EncodeToString(digest[:4])
}

// restoreEtcds runs a Job for each member, and reports when all of them have succeeded.
func (s *scope) restoreEtcds(ctx context.Context) error {
	const condition = operatorv1alpha1.ConditionCompleted
	if names := s.installation.names(); !slices.Equal(names, s.restore.Status.Shards) {
		return s.wait(reasonShardsDiffer, "the installation has the shards %s, and %s are being restored: delete or create Shards again", strings.Join(names, ", "), strings.Join(s.restore.Status.Shards, ", "))
	}
	configMap, err := s.configMap()
	if err != nil {
		return err
	}
	if err := s.config.Cluster.ApplyObject(ctx, condition, configMap); err != nil {
		return s.report.SetResult(status.Result{}, err)
	}
	done, all := 0, 0
	waits := ""
	for _, shard := range s.installation.shards {
		for _, volume := range etcd.NewForShard(shard.Shard).Volumes() {
			all++
			metav1.SetMetaDataAnnotation(&volume.Claim.ObjectMeta, operatorv1alpha1.AnnotationRestore, prefix(s.restore))
			if err := apply.CreateMissing(ctx, s.config.Cluster, condition, volume.Claim); err != nil {
				return s.report.SetResult(status.Result{}, err)
			}
			if volume.Claim.DeletionTimestamp != nil {
				s.report.RequeueWithin(retryInterval)
				return s.wait(reasonRunning, "PersistentVolumeClaim %s is being deleted, and is created again", volume.Claim.Name)
			}
			job := s.newJob(shard, volume)
			if err := apply.CreateMissing(ctx, s.config.Cluster, condition, job); err != nil {
				return s.report.SetResult(status.Result{}, err)
			}
			outcome, err := backup.ReadOutcome(ctx, s.config.Cluster, job, "find what is slow, the store or the volume")
			switch {
			case err != nil:
				return err
			case outcome.Failed && s.restore.Spec.Shard != nil:
				return s.refuse(reasonFailed, "member %s was not restored: %s. The shard does not start. Correct the cause, create another Restore with shard.discardData, and name it in the annotation of the Shard", volume.Member, outcome.Message)
			case outcome.Failed:
				return s.refuse(reasonFailed, "member %s was not restored: %s. The installation does not start. Correct the cause, delete the volume claims of its etcds if one of them was restored, and create the Restore again",
					volume.Member, outcome.Message)
			case outcome.Result != nil, outcome.Lost: // a pod that succeeds has restored the volume, whoever has read its result
				done++
			case waits == "":
				waits = fmt.Sprintf("; Job %s restores member %s%s", job.Name, volume.Member, outcome.Message)
			}
		}
	}
	if done < all {
		return s.wait(reasonRunning, "%d of %d members are restored%s", done, all, waits)
	}
	stopped := metav1.NewTime(s.config.Now())
	out := &s.restore.Status
	out.StoppedAt, out.Duration = &stopped, stopped.Sub(out.StartedAt.Time).Round(time.Second).String()
	if s.restore.Spec.Shard != nil {
		s.report.Set(status.OK(condition, reasonRestored, "restored the etcd of shard %s; it starts", s.restore.Spec.Shard.Name))
		s.report.Set(s.held())
		return nil
	}
	s.report.Set(status.OK(condition, reasonRestored, "restored the etcds of %d shards, and %d Secrets; the installation starts", len(out.Shards), out.Secrets))
	s.report.Set(s.held())
	return nil
}

func (s *scope) meta(name string) metav1.ObjectMeta {
	// Jobs of Backups and Restores are the only ones that the operator watches.
	return metav1.ObjectMeta{
		Name: name, Namespace: s.restore.Namespace, Labels: desired.AppLabels(desired.ComponentBackup, s.restore.Name), OwnerReferences: desired.NewOwnerReferences("Restore", s.restore),
	}
}

func (s *scope) storeConfig() config.Store {
	out := backupstore.ConfigFor(s.store, s.sourceNamespace(), s.root.Name)
	out.Recipients, out.UploadBytesPerSecond, out.ObjectLock = nil, 0, nil // nothing is written
	return out
}

func (s *scope) configMap() (*corev1.ConfigMap, error) {
	cfg := config.Backup{Store: s.storeConfig()}
	(&backup.Volumes{}).MountStore(s.store, &cfg.Store)
	content, err := yaml.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: s.meta(prefix(s.restore)), Data: map[string]string{configKey: string(content)}}, nil
}

// newJob renders the Job of a member, whose volume claim exists.
func (s *scope) newJob(shard shard, volume etcd.Volume) *batchv1.Job {
	files := &backup.Volumes{}
	directory := files.MountConfig(prefix(s.restore))
	store := s.storeConfig()
	files.MountStore(s.store, &store)
	identity := files.MountKey(s.restore.Spec.Identity)
	files.Mount(corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume.Claim.Name},
	}}, etcd.DataMount, false)
	args := []string{
		"--config=" + directory + "/" + configKey, "--id=" + s.restore.Spec.BackupID, "--manifest-digest=" + s.restore.Status.ManifestDigest, "--identity-file=" + identity,
		"--shard=" + shard.Name(), "--prefix=" + shard.prefix(), "--data-dir=" + etcd.DataDirectory, "--name=" + volume.Member, "--initial-cluster=" + etcd.NewForShard(shard.Shard).InitialCluster(),
		"--initial-cluster-token=" + string(s.restore.UID), "--initial-advertise-peer-urls=" + volume.PeerURL, "--restore-id=" + string(s.restore.UID), "--owner=" + shard.EtcdOwner(s.config.ClusterID),
	}
	if s.restore.Spec.TakeOver || s.restore.Spec.Isolated {
		args = append(args, "--take-over")
	}
	job := backup.NewJob(s.meta(jobName(s.restore, volume)), backup.Program{
		Image: s.config.Image.With(s.root.Spec.Image), Spec: s.root.Spec.Image, Command: []string{"/etcd", "backup", "restore"}, Args: args, Files: files,
	})
	// Where the pod runs, the volume stays: members of one etcd are spread as their own pods are.
	spread := map[string]string{labelRestores: shard.Name()}
	maps.Copy(job.Spec.Template.Labels, spread)
	job.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		TopologyKey: corev1.LabelHostname, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: spread},
	}}
	return job
}
