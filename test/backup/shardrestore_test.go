package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/internal/backup/config"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testShard restores one shard of the installation that the other tests have restored, which cannot start here: what the kind refuses, a shard whose
// volume may have data, and then the way to an etcd that starts. Its volume is replaced, and no Secret is touched.
func (r *restores) testShard(t *testing.T) {
	kubeSystem := &corev1.Namespace{}
	if err := r.client.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, kubeSystem); err != nil {
		t.Fatal(err)
	}
	owner := "shard/restored/alpha@" + string(kubeSystem.UID)
	if _, err := r.saved.etcdClient.Put(t.Context(), "/registry/~owner", owner); err != nil {
		t.Fatal(err)
	}
	i := r.saved
	root := i.config.Shards[0]
	i.config.ID, i.config.Installation.KubernetesCluster = "20300102T030405Z-00000007", string(kubeSystem.UID)
	i.config.Shards = append(i.config.Shards, config.Shard{Name: "alpha", Endpoints: root.Endpoints, Prefix: root.Prefix, CredentialsDirectory: root.CredentialsDirectory})
	result, err := i.create(t)
	if err != nil {
		t.Fatal(result.Error)
	}
	before := *r
	r.id, r.digest, r.directory = result.BackupID, result.ManifestDigest, t.TempDir()
	defer func() { r.id, r.digest, r.directory = before.id, before.digest, before.directory }()

	r.checkShardFields(t)
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: restoredNamespace}
	}
	shard := &operatorv1alpha1.Shard{ObjectMeta: named("alpha")}
	shard.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: rootShard}
	shard.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To[int32](1), Storage: &operatorv1alpha1.EtcdStorage{Size: ptr.To(resource.MustParse("1Gi"))}}}
	old := &corev1.PersistentVolumeClaim{ObjectMeta: named("data-alpha-etcd-0"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	old.Labels = etcd.ShardVolumeClaimLabels("alpha")
	create(t, r.client, shard, old)
	r.createForShard(t, "shard-keeps", false)
	r.awaitReason(t, "shard-keeps", "NotAnnotated")
	r.annotateShard(t, shard, "shard-keeps")
	refused := r.await(t, "shard-keeps", operatorv1alpha1.RestorePhaseFailed)
	if condition := meta.FindStatusCondition(refused.Status.Conditions, operatorv1alpha1.ConditionCompleted); condition.Reason != "InstallationHasData" || !strings.Contains(condition.Message, "shard.discardData: true") || refused.Status.StartedAt != nil {
		t.Errorf("got %+v", refused.Status)
	}
	if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil || old.DeletionTimestamp != nil {
		t.Errorf("the volume of a Restore that was refused: %v, %+v", err, old.ObjectMeta)
	}

	output, err := r.command(t.Context(), "", "restore", "create", "shard-back", "-n", restoredNamespace, "--id="+r.id, "--root-shard="+rootShard, "--store=store", "--manifest-digest="+r.digest,
		"--identity-secret=age", "--shard=alpha", "--discard-data")
	if err != nil || !strings.Contains(output, "annotate shard.operator.kcp.io alpha --overwrite operator.kcp.io/restore=shard-back") {
		t.Fatalf("%v: %s", err, output)
	}
	r.annotateShard(t, shard, "shard-back")
	r.endProtection(t, old)
	job := r.awaitJob(t, "shard-back-")
	available := meta.FindStatusCondition(r.getShard(t, shard).Status.Conditions, operatorv1alpha1.ConditionAvailable)
	if available == nil || available.Reason != operatorv1alpha1.ReasonAwaitsRestore || !strings.Contains(available.Message, "Restore shard-back") {
		t.Errorf("the shard says %+v", available)
	}
	r.report(t, job, r.runJob(t, job))
	restored := r.await(t, "shard-back", operatorv1alpha1.RestorePhaseCompleted)
	if status := restored.Status; len(status.Shards) != 1 || status.Shards[0] != "alpha" || status.Secrets != 0 || !meta.IsStatusConditionFalse(status.Conditions, operatorv1alpha1.ConditionReleased) {
		t.Errorf("the status is %+v", status)
	}
	shardtesting.Eventually(t, "the comparison, and the start of the shard", func(ctx context.Context) error {
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(restored), restored); err != nil {
			return err
		}
		if consistent := meta.FindStatusCondition(restored.Status.Conditions, operatorv1alpha1.ConditionConsistent); consistent == nil || consistent.Reason != "Unavailable" { // no server runs here
			return fmt.Errorf("the condition is %+v", consistent)
		}
		if condition := meta.FindStatusCondition(r.getShard(t, shard).Status.Conditions, operatorv1alpha1.ConditionAvailable); condition != nil && condition.Reason == operatorv1alpha1.ReasonAwaitsRestore {
			return errors.New(condition.Message)
		}
		return nil
	})
	if got := r.readData(t); got["/registry/~owner"] != owner || got["/registry/~restored"] != r.id || got["/registry/core.kcp.io/logicalclusters/customresources/one/cluster"] != "{}" {
		t.Errorf("the owner is %q, the mark %q, of %d keys", got["/registry/~owner"], got["/registry/~restored"], len(got))
	}
	r.annotateShard(t, shard, "")
	if err := r.client.Delete(t.Context(), shard); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)) // its root shard does not run
	if err := client.IgnoreNotFound(r.client.Patch(t.Context(), shard, patch)); err != nil {
		t.Fatal(err)
	}
}

// checkShardFields creates Restores of one shard that the kind refuses.
func (r *restores) checkShardFields(t *testing.T) {
	t.Helper()
	for name, change := range map[string]func(*operatorv1alpha1.RestoreSpec){
		"takeOver and isolated are for whole installations": func(s *operatorv1alpha1.RestoreSpec) { s.TakeOver, s.Shard.Name = true, "alpha" },
		"source, takeOver":                      func(s *operatorv1alpha1.RestoreSpec) { s.Source = &operatorv1alpha1.RestoreSource{Namespace: "old"} },
		"shard.name must not be that of":        func(s *operatorv1alpha1.RestoreSpec) { s.Shard.Name = rootShard },
		"spec.shard.name in body should be at ": func(s *operatorv1alpha1.RestoreSpec) { s.Shard.Name = "" },
	} {
		restore := r.shardRestore("refused", false)
		change(&restore.Spec)
		if err := r.client.Create(t.Context(), restore); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error with %q", err, name)
		}
	}
	for _, tc := range []struct{ args, expect string }{
		{"--discard-data", "--discard-data has no effect without --shard"},
		{"--shard=alpha --take-over", "cannot be combined with --shard"},
		{"--shard=alpha --workspace=root:acme:team", "--workspace cannot be combined with --shard"},
	} {
		args := append([]string{"restore", "create", "cli", "-n", restoredNamespace, "--id=" + r.id, "--root-shard=root", "--store=store", "--manifest-digest=" + r.digest, "--identity-secret=age"}, strings.Fields(tc.args)...)
		if output, err := r.command(t.Context(), "", args...); err == nil || !strings.Contains(err.Error(), tc.expect) {
			t.Errorf("%s: %v, %s", tc.args, err, output)
		}
	}
}

func (r *restores) shardRestore(name string, discard bool) *operatorv1alpha1.Restore {
	return &operatorv1alpha1.Restore{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: restoredNamespace}, Spec: operatorv1alpha1.RestoreSpec{
		RootShardRef: corev1.LocalObjectReference{Name: rootShard}, StoreRef: corev1.LocalObjectReference{Name: "store"}, BackupID: r.id, ManifestDigest: r.digest,
		Identity: operatorv1alpha1.SecretKeyReference{Name: "age", Key: "key.txt"}, Shard: &operatorv1alpha1.RestoreShard{Name: "alpha", DiscardData: discard},
	}}
}

func (r *restores) createForShard(t *testing.T, name string, discard bool) {
	t.Helper()
	restore := r.shardRestore(name, discard)
	create(t, r.client, restore)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"shard":{"discardData":true}}}`))
	if err := r.client.Patch(t.Context(), restore, patch); err == nil || !strings.Contains(err.Error(), "shard is immutable") {
		t.Errorf("changing shard: %v", err)
	}
}

func (r *restores) awaitReason(t *testing.T, name, reason string) {
	t.Helper()
	shardtesting.Eventually(t, "reason "+reason+" of Restore "+name, func(ctx context.Context) error {
		restore := &operatorv1alpha1.Restore{}
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: restoredNamespace, Name: name}, restore); err != nil {
			return err
		}
		if condition := meta.FindStatusCondition(restore.Status.Conditions, operatorv1alpha1.ConditionCompleted); condition == nil || condition.Reason != reason {
			return fmt.Errorf("the condition is %+v", condition)
		}
		return nil
	})
}

func (r *restores) annotateShard(t *testing.T, shard *operatorv1alpha1.Shard, restore string) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, operatorv1alpha1.AnnotationRestore, restore))
	if err := r.client.Patch(t.Context(), shard, patch); err != nil {
		t.Fatal(err)
	}
}

func (r *restores) getShard(t *testing.T, shard *operatorv1alpha1.Shard) *operatorv1alpha1.Shard {
	t.Helper()
	out := &operatorv1alpha1.Shard{}
	if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(shard), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// endProtection waits for the deletion of a volume claim, and ends it as the controller that protects claims from that while pods use them.
func (r *restores) endProtection(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	shardtesting.Eventually(t, "the deletion of the old volume", func(ctx context.Context) error {
		live := &corev1.PersistentVolumeClaim{}
		err := r.client.Get(ctx, client.ObjectKeyFromObject(claim), live)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return err
		case err != nil, live.UID != claim.UID:
			return nil
		case live.DeletionTimestamp == nil:
			return errors.New("it is not being deleted")
		}
		live.Finalizers = nil
		return client.IgnoreNotFound(r.client.Update(ctx, live))
	})
}
