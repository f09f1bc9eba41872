package backup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	clientv3 "go.etcd.io/etcd/client/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
)

// restores are the Restores of a namespace, with what a kubelet does for their Jobs.
type restores struct {
	client    client.Client
	command   plugIn
	saved     *installation
	id        string // of the backup
	digest    string
	directory string // of the volume
}

const restoredNamespace = "restored"

// testRestores restores an installation by the operator that runs: what it refuses, and then the way to an etcd that starts.
func testRestores(t *testing.T, c client.Client, run plugIn, s *s3) {
	i := newInstallation(t, s, etcdtest.Start(t))
	i.fill(t, 1)
	for _, prefix := range []string{"/registry", "/cache"} {
		if _, err := i.etcdClient.Put(t.Context(), prefix+"/~owner", "rootshard/restored/root@c1"); err != nil {
			t.Fatal(err)
		}
	}
	i.config.Store.Prefix = restoredNamespace + "/" + rootShard
	i.config.Installation.Namespace, i.config.Installation.Version = restoredNamespace, "registry.example.com/atoll:test"
	i.config.Secrets[0].Type = string(corev1.SecretTypeOpaque)
	result, err := i.create(t)
	if err != nil {
		t.Fatal(result.Error)
	}
	r := &restores{client: c, command: run, saved: i, id: result.BackupID, digest: result.ManifestDigest, directory: t.TempDir()}
	r.createInstallation(t)

	for _, tc := range []struct {
		name           string
		change         func(*operatorv1alpha1.RestoreSpec)
		tag            string // of the image
		reason, expect string
	}{
		{"digest", func(s *operatorv1alpha1.RestoreSpec) { s.ManifestDigest = strings.Repeat("0", 64) }, "", "BackupUnusable", "it is not the backup that was made"},
		{"missing", func(s *operatorv1alpha1.RestoreSpec) { s.BackupID = "20300102T030405Z-0-0" }, "", "BackupUnusable", "cannot be restored"},
		{"place", func(s *operatorv1alpha1.RestoreSpec) { s.TakeOver = false }, "", "OtherOwner", "with takeOver: true"},
		{"version", nil, "other", "OtherVersion", "registry.example.com/atoll:test"},
		{"identity", func(s *operatorv1alpha1.RestoreSpec) { s.Identity.Key = "other" }, "", "BackupUnusable", "cannot be restored"},
	} {
		r.setRoot(t, tc.name, tc.tag)
		r.create(t, tc.name, tc.change)
		refused := r.await(t, tc.name, operatorv1alpha1.RestorePhaseFailed)
		if condition := meta.FindStatusCondition(refused.Status.Conditions, operatorv1alpha1.ConditionCompleted); condition.Reason != tc.reason || !strings.Contains(condition.Message, tc.expect) || refused.Status.StartedAt != nil {
			t.Errorf("%s: %+v", tc.name, refused.Status)
		}
	}
	r.setRoot(t, "secrets", "")
	differing := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "root-ca", Namespace: restoredNamespace}, StringData: map[string]string{"tls.crt": "other"}}
	create(t, c, differing)
	r.create(t, "secrets", nil)
	refused := r.await(t, "secrets", operatorv1alpha1.RestorePhaseFailed)
	if condition := meta.FindStatusCondition(refused.Status.Conditions, operatorv1alpha1.ConditionCompleted); condition.Reason != "SecretsDiffer" || !strings.Contains(condition.Message, "root-ca") {
		t.Errorf("got %+v", condition)
	}
	if err := c.Delete(t.Context(), differing); err != nil {
		t.Fatal(err)
	}
	if list := (&certmanagerv1.CertificateList{}); c.List(t.Context(), list, client.InNamespace(restoredNamespace)) != nil || len(list.Items) > 0 {
		t.Errorf("an installation that waits has the Certificates %v", list.Items)
	}

	r.setRoot(t, "good", "")
	followed := r.restoreByCommand(t, "good")
	job := r.awaitJob(t, "good-")
	r.report(t, job, r.runJob(t, job))
	restored := r.await(t, "good", operatorv1alpha1.RestorePhaseCompleted)
	if output, err := followed(); err != nil || !strings.Contains(output, "annotation operator.kcp.io/restore: good") || !strings.Contains(output, "\nCompleted: restored the etcds of 1 shards") {
		t.Errorf("%v: %s", err, output)
	}
	if status := restored.Status; status.Secrets != 1 || len(status.Shards) != 1 || status.ManifestDigest != r.digest || status.BackupTakenAt == nil || !meta.IsStatusConditionTrue(status.Conditions, operatorv1alpha1.ConditionReady) ||
		!meta.IsStatusConditionFalse(status.Conditions, operatorv1alpha1.ConditionReleased) {
		t.Errorf("the status is %+v", status)
	}
	secret, err := os.ReadFile(filepath.Join(i.directory, "secrets", "root-ca", "tls.crt"))
	live := &corev1.Secret{}
	if getErr := c.Get(t.Context(), client.ObjectKeyFromObject(differing), live); err != nil || getErr != nil || string(live.Data["tls.crt"]) != string(secret) || live.Annotations["cert-manager.io/issuer-name"] == "" {
		t.Errorf("%v, %v: the Secret is %+v", err, getErr, live)
	}
	shardtesting.Eventually(t, "the installation to start", func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Namespace: restoredNamespace, Name: "root-ca"}, &certmanagerv1.Certificate{})
	})
	if output, err := r.execute(t, job); err != nil || !strings.Contains(output, "was restored before") {
		t.Errorf("an attempt after one that succeeded: %v: %s", err, output)
	}
	r.checkData(t)
	r.checkRelease(t, restored)
	r.testShard(t)

	// Another Restore of the same installation: the volume has data.
	r.setRoot(t, "second", "")
	r.create(t, "second", nil)
	if output, err := r.execute(t, r.awaitJob(t, "second-")); err == nil || !strings.Contains(output, "is not empty: a restore replaces no data") {
		t.Errorf("%v: %s", err, output)
	}
}

// createInstallation creates the RootShard, which waits, and what Restores need.
func (r *restores) createInstallation(t *testing.T) {
	t.Helper()
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity, err := os.ReadFile(r.saved.identity)
	if err != nil {
		t.Fatal(err)
	}
	key := func(name string) operatorv1alpha1.SecretKeyReference {
		return operatorv1alpha1.SecretKeyReference{Name: "s3", Key: name}
	}
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: restoredNamespace}
	}
	root := &operatorv1alpha1.RootShard{ObjectMeta: named(rootShard)}
	root.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: "later"}
	root.Spec.External = operatorv1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}
	root.Spec.Certificates.IssuerRef = nil
	root.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To[int32](1), Storage: &operatorv1alpha1.EtcdStorage{Size: ptr.To(resource.MustParse("1Gi"))}}}
	create(t, r.client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: restoredNamespace}}, &corev1.ServiceAccount{ObjectMeta: named("default")},
		&corev1.Secret{ObjectMeta: named("s3"), StringData: map[string]string{"id": programs.S3AccessKey, "key": programs.S3SecretKey}},
		&corev1.Secret{ObjectMeta: named("age"), StringData: map[string]string{"key.txt": string(identity), "other": other.String()}},
		&operatorv1alpha1.BackupStore{ObjectMeta: named("store"), Spec: operatorv1alpha1.BackupStoreSpec{
			EndpointURL: "http://" + r.saved.s3.address, Bucket: bucket, S3Credentials: operatorv1alpha1.S3Credentials{AccessKeyID: key("id"), SecretAccessKey: key("key")},
			Encryption: operatorv1alpha1.BackupEncryption{Recipients: r.saved.config.Store.Recipients},
		}}, root)
}

// setRoot makes the RootShard wait for a Restore.
func (r *restores) setRoot(t *testing.T, restore, tag string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"image":{"tag":%q}}}`, operatorv1alpha1.AnnotationRestore, restore, tag)
	if tag == "" {
		patch = fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"image":null}}`, operatorv1alpha1.AnnotationRestore, restore)
	}
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: rootShard, Namespace: restoredNamespace}}
	if err := r.client.Patch(t.Context(), root, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func (r *restores) create(t *testing.T, name string, change func(*operatorv1alpha1.RestoreSpec)) {
	t.Helper()
	restore := &operatorv1alpha1.Restore{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: restoredNamespace}, Spec: operatorv1alpha1.RestoreSpec{
		RootShardRef: corev1.LocalObjectReference{Name: rootShard}, StoreRef: corev1.LocalObjectReference{Name: "store"}, BackupID: r.id, ManifestDigest: r.digest,
		Identity: operatorv1alpha1.SecretKeyReference{Name: "age", Key: "key.txt"}, TakeOver: true,
	}}
	if change != nil {
		change(&restore.Spec)
	}
	create(t, r.client, restore)
}

func (r *restores) await(t *testing.T, name string, phase operatorv1alpha1.RestorePhase) *operatorv1alpha1.Restore {
	t.Helper()
	restore := &operatorv1alpha1.Restore{}
	shardtesting.Eventually(t, "Restore "+name+" to be "+string(phase), func(ctx context.Context) error {
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: restoredNamespace, Name: name}, restore); err != nil {
			return err
		}
		if restore.Status.Phase != phase {
			return fmt.Errorf("its status is %+v", restore.Status)
		}
		return nil
	})
	return restore
}

func (r *restores) awaitJob(t *testing.T, prefix string) *batchv1.Job {
	t.Helper()
	return r.awaitJobIn(t, restoredNamespace, prefix)
}

func (r *restores) awaitJobIn(t *testing.T, namespace, prefix string) *batchv1.Job {
	t.Helper()
	var out *batchv1.Job
	// A drill looks every half minute whether that of another one has ended.
	shardtesting.EventuallyWithin(t, 3*time.Minute, "a Job "+prefix, func(ctx context.Context) error {
		list := &batchv1.JobList{}
		if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].Name, prefix) {
				out = &list.Items[i]
				return nil
			}
		}
		restore := &operatorv1alpha1.Restore{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: strings.TrimSuffix(prefix, "-")}, restore)
		return fmt.Errorf("there is none, %v: %+v", err, restore.Status)
	})
	return out
}

// execute runs the program of a Job with its arguments, on files instead of mounts.
func (r *restores) execute(t *testing.T, job *batchv1.Job) (string, error) {
	t.Helper()
	pod := job.Spec.Template.Spec
	volume := pod.Volumes[len(pod.Volumes)-1].PersistentVolumeClaim
	if volume == nil || volume.ClaimName != "data-root-etcd-0" && volume.ClaimName != "data-alpha-etcd-0" {
		t.Fatalf("the volumes are %+v", pod.Volumes)
	}
	if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: job.Namespace, Name: volume.ClaimName}, &corev1.PersistentVolumeClaim{}); err != nil {
		t.Fatal(err)
	}
	configMap := &corev1.ConfigMap{}
	if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: job.Namespace, Name: pod.Volumes[0].ConfigMap.Name}, configMap); err != nil {
		t.Fatal(err)
	}
	mounts := map[string]string{
		"/etc/backup/secrets/s3/id": filepath.Join(r.saved.directory, "access"), "/etc/backup/secrets/s3/key": filepath.Join(r.saved.directory, "secret"),
		"/etc/backup/secrets/age/key.txt": r.saved.identity, "/var/lib/etcd": r.directory, "/dev/termination-log": filepath.Join(r.directory, "result"), "/etc/backup/config": r.directory,
	}
	replace := func(text string) string {
		for mount, path := range mounts {
			text = strings.ReplaceAll(text, mount, path)
		}
		return text
	}
	if err := os.WriteFile(filepath.Join(r.directory, "store.yaml"), []byte(replace(configMap.Data["store.yaml"])), 0o600); err != nil {
		t.Fatal(err)
	}
	container := pod.Containers[0]
	var args []string
	for _, arg := range append(container.Command[1:], container.Args...) {
		args = append(args, replace(arg))
	}
	output, err := exec.CommandContext(t.Context(), filepath.Join(bin, "etcd"), args...).CombinedOutput()
	return string(output), err
}

func (r *restores) runJob(t *testing.T, job *batchv1.Job) string {
	t.Helper()
	if output, err := r.execute(t, job); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	result, err := os.ReadFile(filepath.Join(r.directory, "result"))
	if err != nil {
		t.Fatal(err)
	}
	return string(result)
}

// report ends a Job, as the kubelet and the controller of Jobs do.
func (r *restores) report(t *testing.T, job *batchv1.Job, message string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace, Labels: job.Spec.Template.Labels}, Spec: job.Spec.Template.Spec}
	pod.Labels[batchv1.JobNameLabel] = job.Name
	create(t, r.client, pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "backup", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}}}
	if err := r.client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"test":"ended"}}}`))
	if err := r.client.Patch(t.Context(), job, patch); err != nil {
		t.Fatal(err)
	}
}

// readData starts an etcd on the volume, and returns its keys.
func (r *restores) readData(t *testing.T) map[string]string {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{Directory: filepath.Join(r.directory, "member-data"), UnsafeNoFsync: true, WALSizeBytes: 5000, ECDSACurve: etcdtest.Curve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	found, err := etcdtest.NewClient(t, server).Get(t.Context(), "/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, kv := range found.Kvs {
		got[string(kv.Key)] = string(kv.Value)
	}
	return got
}

// checkOwner compares the owner of the restored keys, which is in this cluster.
func (r *restores) checkOwner(t *testing.T, name string) map[string]string {
	t.Helper()
	kubeSystem := &corev1.Namespace{}
	if err := r.client.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, kubeSystem); err != nil {
		t.Fatal(err)
	}
	got, want := r.readData(t), name+"@"+string(kubeSystem.UID)
	if got["/registry/~owner"] != want || got["/cache/~owner"] != want {
		t.Errorf("the keys are owned by %q and %q, want %q", got["/registry/~owner"], got["/cache/~owner"], want)
	}
	return got
}

func (r *restores) checkData(t *testing.T) {
	t.Helper()
	got := r.checkOwner(t, "rootshard/restored/root")
	if len(got) != 6 || got["/registry/~restored"] != r.id || got["/registry/core.kcp.io/logicalclusters/customresources/one/cluster"] != "{}" {
		for key := range got {
			t.Log(key)
		}
		t.Errorf("the restored etcd has %d keys", len(got))
	}
}

// checkRelease releases the installation, whose etcd cannot be reached here.
func (r *restores) checkRelease(t *testing.T, restore *operatorv1alpha1.Restore) {
	t.Helper()
	patch := func(spec string) error {
		return r.client.Patch(t.Context(), restore.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`)))
	}
	for _, spec := range []string{`{"backupId":"other"}`, `{"takeOver":false}`, `{"manifestDigest":null}`} {
		if err := patch(spec); err == nil || !strings.Contains(err.Error(), "create another") {
			t.Errorf("changing %s: %v", spec, err)
		}
	}
	r.releaseByCommand(t, restore.Name)
	if err := patch(`{"release":false}`); err == nil || !strings.Contains(err.Error(), "cannot be held again") {
		t.Errorf("holding again: %v", err)
	}
	shardtesting.Eventually(t, "the release to be attempted", func(ctx context.Context) error {
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(restore), restore); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(restore.Status.Conditions, operatorv1alpha1.ConditionReleased)
		if condition.Status != metav1.ConditionFalse || condition.Reason != "Unavailable" || !strings.Contains(condition.Message, "root-etcd-client") {
			return fmt.Errorf("the condition is %+v", condition)
		}
		return nil
	})
}
