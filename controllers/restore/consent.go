package restore

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
)

// labelRestores, on the pods of Jobs, names the shard whose volumes they fill.
const labelRestores = "operator.kcp.io/restores"

// checkConsent ends a Restore that has started and that the Shard does not name any more, whatever else it waits for. The Shard is stopped until
// then: if it started in between, it would take writes, and an annotation that returns would be taken as the consent to lose these.
func (s *scope) checkConsent(ctx context.Context) error {
	if s.restore.Spec.Shard == nil || !s.hasStarted {
		return nil
	}
	shard, err := apply.Get[operatorv1alpha1.Shard](ctx, s.config.Cluster, s.restore.Namespace, s.restore.Spec.Shard.Name)
	if err != nil || shard == nil || shard.Annotations[operatorv1alpha1.AnnotationRestore] == s.restore.Name {
		return err
	}
	return s.refuse(reasonNotAnnotated, "withdrawn: Shard %s does not name this Restore any more, and starts with what its volumes have. To restore it, create another Restore with shard.discardData: true, and name it in the annotation %s",
		shard.Name, operatorv1alpha1.AnnotationRestore)
}

// checkEarlier refuses the name of a Restore that has filled the shard and was deleted: the annotation may be left from that one, and is no consent to
// restore the shard again.
func (s *scope) checkEarlier(ctx context.Context, shard shard) error {
	for _, name := range etcd.NewForShard(shard.Shard).ClaimNames() {
		claim, err := apply.Get[corev1.PersistentVolumeClaim](ctx, s.config.Cluster, shard.Namespace(), name)
		if err != nil {
			return err
		}
		if claim == nil {
			continue
		}
		filled := claim.Annotations[operatorv1alpha1.AnnotationRestore]
		if at := strings.LastIndex(filled, "-"); at >= 0 && filled[:at] == s.restore.Name && filled != prefix(s.restore) {
			return s.refuse(reasonHasData, "a Restore of this name has filled shard %s before, and the annotation of the Shard may be that of then: create a Restore of another name, and name it in the annotation %s",
				shard.Name(), operatorv1alpha1.AnnotationRestore)
		}
	}
	return nil
}

// newShardStatus records what of the shard must not change while its etcd is restored.
func newShardStatus(shard shard) *operatorv1alpha1.RestoreShardStatus {
	out := &operatorv1alpha1.RestoreShardStatus{InitialCluster: etcd.NewForShard(shard.Shard).InitialCluster(), Prefix: shard.prefix()}
	if before := shard.EtcdStatus(); before != nil {
		out.ReplacedEtcdClusterID = before.ClusterID
	}
	return out
}

// compareStarted waits while the shard has another etcd than at the start. While it is stopped, nothing else holds these fields: each Job would restore
// its member for the list of members of its time, and the members would be of two clusters.
func (s *scope) compareStarted(shard shard) error {
	was := s.restore.Status.Shard
	if was == nil || was.InitialCluster == "" {
		return nil
	}
	if is := etcd.NewForShard(shard.Shard).InitialCluster(); is != was.InitialCluster {
		return s.wait(reasonShardsDiffer, "the members of the etcd of Shard %s are %s, and this Restore has begun with %s: set etcd.managed.replicas and clusterDomain of the Shard back", shard.Name(), is, was.InitialCluster)
	}
	if is := shard.prefix(); is != was.Prefix {
		return s.wait(reasonShardsDiffer, "the keys of Shard %s have the prefix %s, and this Restore has begun with %s: set etcd.prefix of the Shard back", shard.Name(), is, was.Prefix)
	}
	return nil
}

// workloads are the Deployment and the StatefulSet with the names of those of the shard. They are read past the cache: one that was created just
// now, and that the cache does not have yet, would write into the volumes.
func (s *scope) workloads(ctx context.Context, shard shard) (out []client.Object, err error) {
	deployment, err := apply.Get[appsv1.Deployment](ctx, s.config.Reader(), shard.Namespace(), shard.Server())
	if err != nil {
		return nil, err
	}
	if deployment != nil {
		out = append(out, deployment)
	}
	set, err := apply.Get[appsv1.StatefulSet](ctx, s.config.Reader(), shard.Namespace(), etcd.NewForShard(shard.Shard).Name())
	if err != nil {
		return nil, err
	}
	if set != nil {
		out = append(out, set)
	}
	return out, nil
}

func describe(workload client.Object) string {
	if _, isSet := workload.(*appsv1.StatefulSet); isSet {
		return "StatefulSet " + workload.GetName()
	}
	return "Deployment " + workload.GetName()
}

// checkOwners refuses a shard whose objects, by their names, are those of something else: a CacheServer or a RootShard of its name has an etcd with
// the same names.
func (s *scope) checkOwners(ctx context.Context, shard shard) error {
	const advice = "recreate one of the two under another name"
	workloads, err := s.workloads(ctx, shard)
	if err != nil {
		return err
	}
	for _, workload := range workloads {
		if metav1.IsControlledBy(workload, shard.object) {
			continue
		}
		owner := "no other object"
		if controller := metav1.GetControllerOf(workload); controller != nil {
			owner = fmt.Sprintf("%s %s", controller.Kind, controller.Name)
		}
		return s.refuse(reasonNotSupported, "%s belongs to %s, and not to Shard %s: %s", describe(workload), owner, shard.Name(), advice)
	}
	for _, name := range etcd.NewForShard(shard.Shard).ClaimNames() {
		claim, err := apply.Get[corev1.PersistentVolumeClaim](ctx, s.config.Cluster, shard.Namespace(), name)
		if err != nil {
			return err
		}
		if claim != nil && claim.Labels[operatorv1alpha1.LabelShard] != shard.Name() {
			return s.refuse(reasonNotSupported, "PersistentVolumeClaim %s has the name of a volume of Shard %s, and not its label %s=%s: if it is that of another etcd, %s. If it is that of the Shard, label it, and create another Restore",
				name, shard.Name(), operatorv1alpha1.LabelShard, shard.Name(), advice)
		}
	}
	return nil
}

// awaitOtherJobs waits for the Jobs of other Restores of the shard, such as one that has failed for another member: they mount volume claims by name,
// and would write into those that this Restore creates.
func (s *scope) awaitOtherJobs(ctx context.Context, shard shard) error {
	own := prefix(s.restore) + "-"
	jobs := &batchv1.JobList{}
	if err := s.config.Cluster.List(ctx, jobs, client.InNamespace(shard.Namespace()), client.MatchingLabels{"app.kubernetes.io/component": desired.ComponentBackup}); err != nil {
		return err
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if job.Spec.Template.Labels[labelRestores] == shard.Name() && !strings.HasPrefix(job.Name, own) && !hasEnded(job) {
			return s.wait(reasonRunning, "Job %s of another Restore has not ended, and would write into the volumes of Shard %s: wait for it, or delete it", job.Name, shard.Name())
		}
	}
	pods := &corev1.PodList{}
	if err := s.config.Cluster.List(ctx, pods, client.InNamespace(shard.Namespace()), client.MatchingLabels{labelRestores: shard.Name()}); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; !ended && !strings.HasPrefix(pod.Labels[batchv1.JobNameLabel], own) {
			return s.wait(reasonRunning, "pod %s of another Restore has not ended, and would write into the volumes of Shard %s. %s", pod.Name, shard.Name(), outOfService)
		}
	}
	return nil
}

func hasEnded(job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
