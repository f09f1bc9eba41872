package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
)

// maxRevisions is above what a shard writes between two backups, and below what a restore adds to the revisions: the difference is a number of writes
// only if no restore is in between.
const maxRevisions = 1_000_000_000

// checkShard waits for the shard that is restored, and refuses one that cannot be.
func (s *scope) checkShard(ctx context.Context) error {
	name := s.restore.Spec.Shard.Name
	if len(s.installation.shards) == 0 {
		return s.wait(operatorv1alpha1.ReasonReferenceNotFound, "RootShard %s has no Shard %s in namespace %s: create it with the annotation %s: %s, or delete this Restore",
			s.root.Name, name, s.restore.Namespace, operatorv1alpha1.AnnotationRestore, s.restore.Name)
	}
	shard := s.installation.shards[0]
	// After the start, the deletion waits for this Restore: it counts the workspaces when the shard serves again.
	if force := shard.Annotations()[operatorv1alpha1.AnnotationForceDelete] == "true"; shard.object.DeletionTimestamp != nil && (!s.hasStarted || force) {
		return s.wait(operatorv1alpha1.ReasonReferenceNotFound, "Shard %s is being deleted: see its conditions. If its deletion cannot end, set its annotation %s=true, and what is on the shard is lost; or delete this Restore",
			name, operatorv1alpha1.AnnotationForceDelete)
	}
	if message := s.installation.unsupported; message != "" && s.hasStarted {
		return s.wait(reasonShardsDiffer, "Shard %s was changed while its etcd is being restored: %s; or set its field etcd back", name, message)
	} else if message != "" {
		return s.refuse(reasonNotSupported, "%s", message)
	}
	if shard.Annotations()[operatorv1alpha1.AnnotationRestore] != s.restore.Name {
		return s.wait(reasonNotAnnotated, "Shard %s does not name this Restore: set its annotation %s: %s, and the shard is stopped and loses what it has", name, operatorv1alpha1.AnnotationRestore, s.restore.Name)
	}
	if err := s.checkOwners(ctx, shard); err != nil {
		return err
	}
	if s.hasStarted {
		return s.compareStarted(shard)
	}
	if err := s.checkEarlier(ctx, shard); err != nil {
		return err
	}
	if awaits, err := dependencies.AwaitRestore(ctx, s.config.Cluster, s.root); err != nil {
		return err
	} else if awaits.Type != "" {
		return s.wait(operatorv1alpha1.ReasonAwaitsRestore, "RootShard %s has not started: %s", s.root.Name, awaits.Message)
	}
	list := &operatorv1alpha1.RestoreList{}
	if err := s.config.Cluster.List(ctx, list, client.InNamespace(s.restore.Namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		if other := &list.Items[i]; other.UID != s.restore.UID && other.Spec.RootShardRef.Name == s.root.Name && other.Status.Phase == operatorv1alpha1.RestorePhaseRunning {
			s.report.RequeueWithin(retryInterval)
			return s.wait(reasonRunning, "Restore %s of the same installation has not ended: wait for it, or delete it", other.Name)
		}
	}
	return nil
}

// compareInstallation compares what one shard needs of the backup. unknown are shards that the backup does not have.
func (s *scope) compareInstallation(saved *manifest.Manifest, unknown []string) error {
	from := saved.Installation
	switch {
	case len(unknown) > 0:
		return s.refuse(reasonShardsDiffer, "the backup has no shard %s: choose another backup", strings.Join(unknown, ", "))
	case from.Namespace != s.restore.Namespace || from.RootShard != s.root.Name || from.KubernetesCluster != s.config.ClusterID:
		return s.refuse(reasonOtherOwner, "the backup is that of RootShard %s/%s of cluster %s, want %s/%s of cluster %s: one shard is restored from a backup of its own installation",
			from.Namespace, from.RootShard, from.KubernetesCluster, s.restore.Namespace, s.root.Name, s.config.ClusterID)
	// One that was restored itself may have backups that are older than its RootShard.
	case saved.CutStoppedAt.Before(s.root.CreationTimestamp.Time) && s.root.Annotations[operatorv1alpha1.AnnotationRestore] == "":
		return s.refuse(reasonOtherOwner, "the backup is of %s, and RootShard %s was created at %s: it is that of an earlier installation of the same name",
			saved.CutStoppedAt.UTC().Format(time.RFC3339), s.root.Name, s.root.CreationTimestamp.UTC().Format(time.RFC3339))
	}
	return nil
}

// data is what the volumes of a shard have.
type data struct {
	isEmpty  bool  // all volumes are known to be empty, or do not exist
	serves   bool  // etcd has a quorum
	revision int64 // of its last write
}

// observeData asks the members of the etcd of a shard.
func (s *scope) observeData(ctx context.Context, shard shard) (data, error) {
	cluster := etcd.NewForShard(shard.Shard)
	var claims []bool // whether they exist, by ordinal
	for _, name := range cluster.ClaimNames() {
		claim, err := apply.Get[corev1.PersistentVolumeClaim](ctx, s.config.Cluster, shard.Namespace(), name)
		if err != nil {
			return data{}, err
		}
		claims = append(claims, claim != nil)
	}
	if !slices.Contains(claims, true) {
		return data{isEmpty: true}, nil
	}
	secret, err := apply.Get[corev1.Secret](ctx, s.config.Cluster, shard.Namespace(), cluster.ClientSecret())
	if err != nil || secret == nil {
		return data{}, err
	}
	credentials, err := s.etcds.Credentials(secret.Data)
	if err != nil {
		return data{}, nil // no client can be made
	}
	facts := etcd.Facts{}
	s.etcds.Observe(ctx, cluster.Endpoints(), credentials, &facts)
	out := data{isEmpty: true, serves: facts.ClusterID != ""}
	for at, exists := range claims {
		out.isEmpty = out.isEmpty && (!exists || facts.Members[at].Empty)
	}
	if out.serves {
		out.revision, err = s.etcds.Revision(ctx, etcd.Connection(shard.AsOwner(), shard.Spec().Etcd).Servers, credentials)
	}
	return out, err
}

// checkLoss refuses to discard what the user has not given up. While the shard serves, it waits for the end of migrations: those of a shard whose
// data is lost, or whose server does not start, cannot end before it is restored.
func (s *scope) checkLoss(ctx context.Context, saved *manifest.Manifest) error {
	shard := s.installation.shards[0]
	found, err := s.observeData(ctx, shard)
	if err != nil {
		return err
	}
	switch {
	case found.isEmpty:
		return nil
	case !s.restore.Spec.Shard.DiscardData:
		at := slices.IndexFunc(saved.Shards, func(saved manifest.Shard) bool { return saved.Name == shard.Name() }) // it is there
		return s.refuse(reasonHasData, "%s. If that is to be lost, create another Restore with shard.discardData: true, and name it in the annotation of the Shard", describeLoss(shard.Name(), found, saved.Shards[at], saved.CutStartedAt, s.config.Now()))
	case !found.serves, !meta.IsStatusConditionTrue(shard.object.Status.Conditions, operatorv1alpha1.ConditionAvailable): // moves need the server, too
		return nil
	}
	s.report.RequeueWithin(retryInterval)
	switch migrations, err := s.servers.Migrations(ctx, s.root, shard.object); {
	case err != nil:
		return s.wait(reasonMigrating, "whether workspaces move from or to shard %s is not known: %v. Repair RootShard %s, which has the record of the moves", shard.Name(), err, s.root.Name)
	case len(migrations) > 0:
		return s.wait(reasonMigrating, "LogicalClusterMigrations from or to shard %s have not ended: %s. Wait for them, or delete those that have not taken over", shard.Name(), list(migrations))
	}
	return nil
}

// describeLoss says what a restore of a shard would lose.
func describeLoss(name string, found data, saved manifest.Shard, taken, now time.Time) string {
	since := fmt.Sprintf("since the backup of %s (%s ago)", taken.UTC().Format(time.RFC3339), now.Sub(taken).Round(time.Second))
	writes := found.revision - saved.RevisionFrom
	switch {
	case !found.serves:
		return fmt.Sprintf("the volumes of shard %s may have all that was written %s, because its etcd does not answer: repair it (docs/operator-etcd.md)", name, since)
	case writes > 0 && writes < maxRevisions:
		return fmt.Sprintf("the etcd of shard %s serves, and has %d writes of the time %s", name, writes, since)
	}
	return fmt.Sprintf("the etcd of shard %s serves, and has what was written %s", name, since)
}

// list names some of many.
func list(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// emptyShard waits until the shard is stopped, and deletes the volume claims that no Job of this Restore fills. The controller of the Shard stops it
// when it sees that the Restore has started, and says so in the Shard: afterwards, it creates nothing.
func (s *scope) emptyShard(ctx context.Context) error {
	if s.restore.Spec.Shard == nil {
		return nil
	}
	s.report.RequeueWithin(retryInterval)
	shard := s.installation.shards[0]
	stopped := dependencies.ShardStopped(s.restore)
	available := meta.FindStatusCondition(shard.object.Status.Conditions, stopped.Type)
	if !s.hasStarted || available == nil || available.Reason != stopped.Reason || available.Message != stopped.Message {
		return s.wait(reasonRunning, "Shard %s is being stopped", shard.Name())
	}
	if err := s.awaitStop(ctx, shard); err != nil {
		return err
	}
	for _, name := range etcd.NewForShard(shard.Shard).ClaimNames() {
		claim, err := apply.Get[corev1.PersistentVolumeClaim](ctx, s.config.Cluster, shard.Namespace(), name)
		switch {
		case err != nil:
			return err
		case claim == nil || claim.Annotations[operatorv1alpha1.AnnotationRestore] == prefix(s.restore):
			continue
		case claim.DeletionTimestamp == nil: // it is one of the shard: checkOwners
			if err := client.IgnoreNotFound(s.config.Cluster.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})); err != nil {
				return fmt.Errorf("deleting PersistentVolumeClaim %s/%s: %w", claim.Namespace, claim.Name, err)
			}
		}
		return s.wait(reasonRunning, "PersistentVolumeClaim %s is being deleted when no pod uses it, and is created again: see `kubectl -n %s describe pvc %s`. %s", name, shard.Namespace(), name, outOfService)
	}
	return nil
}

// outOfService is what a person does about a pod whose end is not confirmed. Deleting it by force confirms nothing: it may still write.
const outOfService = "If the node of a pod does not return, delete the Node, or taint it node.kubernetes.io/out-of-service=nodeshutdown:NoExecute when it is switched off"

// awaitStop waits for the end of the pods: a server that has not ended yet would write into the restored etcd, without knowing that it is restored.
func (s *scope) awaitStop(ctx context.Context, shard shard) error {
	workloads, err := s.workloads(ctx, shard)
	if err != nil {
		return err
	}
	for _, labels := range []map[string]string{shard.Labels(), desired.AppLabels(desired.ComponentEtcd, shard.Name())} {
		pods := &corev1.PodList{}
		if err := s.config.Cluster.List(ctx, pods, client.InNamespace(shard.Namespace()), client.MatchingLabels(labels)); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			pod := &pods.Items[0]
			return s.wait(reasonRunning, "Shard %s is being stopped: pod %s on node %q has not ended. %s", shard.Name(), pod.Name, pod.Spec.NodeName, outOfService)
		}
	}
	if len(workloads) > 0 { // those that are deleted in the foreground exist until their pods have ended
		return s.wait(reasonRunning, "Shard %s is being stopped: %s exists", shard.Name(), describe(workloads[0]))
	}
	return s.awaitOtherJobs(ctx, shard)
}
