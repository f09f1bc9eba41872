package backup

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/golden"
)

var created = metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))

const namespace = "kcp"

// installation is a RootShard with a Shard, its Secrets, a store that is ready, and a Backup.
type installation struct {
	t      *testing.T
	client client.Client
	store  *operatorv1alpha1.BackupStore
	backup *operatorv1alpha1.Backup
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, UID: "11111111-2222"}
}

func newBackup(name string, age time.Duration) *operatorv1alpha1.Backup {
	out := &operatorv1alpha1.Backup{ObjectMeta: named(name)}
	out.UID, out.CreationTimestamp = "11111111-"+out.UID, metav1.NewTime(created.Add(-age))
	out.Spec.RootShardRef.Name, out.Spec.StoreRef.Name = "root", "store"
	return out
}

func newInstallation(t *testing.T, more ...client.Object) *installation {
	t.Helper()
	root := &operatorv1alpha1.RootShard{ObjectMeta: named("root")}
	root.Spec.Image = &operatorv1alpha1.ImageSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}
	shard := &operatorv1alpha1.Shard{ObjectMeta: named("alpha")}
	shard.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	shard.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Endpoints: []string{"https://etcd:2379"}, Prefix: "alpha", TLSConfig: &operatorv1alpha1.EtcdTLSConfig{SecretRef: corev1.LocalObjectReference{Name: "own-etcd"}}}
	secret := func(name string, annotations map[string]string, owners ...metav1.OwnerReference) *corev1.Secret {
		out := &corev1.Secret{ObjectMeta: named(name), Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("certificate")}}
		out.Annotations, out.OwnerReferences = annotations, owners
		return out
	}
	issued := map[string]string{certmanagerv1.CertificateNameKey: "c", "kubectl.kubernetes.io/last-applied-configuration": `{"data":"c2VjcmV0"}`}
	server := &appsv1.Deployment{ObjectMeta: named("root-kcp")}
	server.OwnerReferences = desired.NewOwnerReferences("RootShard", root)
	for _, name := range []string{"root-server", "encryption", "root-kubeconfig"} {
		server.Spec.Template.Spec.Volumes = append(server.Spec.Template.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}})
	}
	i := &installation{t: t, store: &operatorv1alpha1.BackupStore{ObjectMeta: named("store")}, backup: newBackup("daily", 0)}
	i.store.Spec = operatorv1alpha1.BackupStoreSpec{
		EndpointURL: "https://s3.example.com", Bucket: "backups", Prefix: "prod",
		S3Credentials: operatorv1alpha1.S3Credentials{AccessKeyID: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"}, SecretAccessKey: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "key"}},
		EndpointCA:    &operatorv1alpha1.SecretKeyReference{Name: "s3-ca", Key: "ca.crt"},
		Encryption:    operatorv1alpha1.BackupEncryption{Recipients: []string{"age1example"}},
	}
	i.store.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	i.client = memory.NewClient(t, append([]client.Object{
		root, shard, i.store, i.backup, server, secret("root-ca", issued), secret("root-service-account", issued), secret("root-server", issued), secret("encryption", nil),
		secret("root-kubeconfig", nil, desired.NewOwnerReferences("RootShard", root)...), secret("of-others", nil),
	}, more...)...)
	return i
}

// reconcile reconciles the Backup, and returns the condition Completed.
func (i *installation) reconcile() *metav1.Condition {
	i.t.Helper()
	r := NewReconciler(reconcile.Config{
		Cluster: apply.Cluster{Client: i.client}, Recorder: events.NewFakeRecorder(100), Now: func() time.Time { return created.Time },
		Image: desired.Image{Repository: "atoll", Tag: "v1"}, ClusterID: "cluster",
	})
	if _, err := r.Reconcile(i.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(i.backup)}); err != nil {
		i.t.Fatal(err)
	}
	i.get(i.backup)
	condition := meta.FindStatusCondition(i.backup.Status.Conditions, operatorv1alpha1.ConditionCompleted)
	if condition == nil {
		return &metav1.Condition{}
	}
	return condition
}

func (i *installation) get(object client.Object) {
	i.t.Helper()
	if err := i.client.Get(i.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		i.t.Fatal(err)
	}
}

// end adds a pod of the Job with a termination message.
func (i *installation) end(message string, code int32) {
	i.t.Helper()
	pod := &corev1.Pod{ObjectMeta: named("pod")}
	pod.Labels = map[string]string{batchv1.JobNameLabel: "daily-backup"}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message, ExitCode: code, Reason: "Error"}}}}
	if err := i.client.Create(i.t.Context(), pod); err != nil {
		i.t.Fatal(err)
	}
}

func (i *installation) expect(condition *metav1.Condition, phase operatorv1alpha1.BackupPhase, text string) {
	i.t.Helper()
	if i.backup.Status.Phase != phase || !strings.Contains(condition.Message, text) {
		i.t.Errorf("phase %s, condition %+v; want %s and %q", i.backup.Status.Phase, condition, phase, text)
	}
}

func TestBackup(t *testing.T) {
	i := newInstallation(t)
	i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseRunning, "Job daily-backup saves the installation")
	if i.backup.Status.BackupID != "20300102T030405Z-11111111" || i.backup.Status.DestinationPath != "s3://backups/prod/kcp/root/20300102T030405Z-11111111" {
		t.Errorf("the status is %+v", i.backup.Status)
	}
	job, configMap := &batchv1.Job{ObjectMeta: named("daily-backup")}, &corev1.ConfigMap{ObjectMeta: named("daily-backup")}
	i.get(job)
	i.get(configMap)
	for _, object := range []client.Object{job, configMap} {
		object.SetResourceVersion("")
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	golden.Check[client.Object](t, "run", configMap, job)

	message, err := json.Marshal(config.Result{
		StartedAt: created.Time, StoppedAt: created.Add(90 * time.Second), ManifestDigest: "digest", Size: 20<<20 + 1, SnapshotSize: 100, Shards: 2, LogicalClusters: 3, Secrets: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	i.end(string(message), 0)
	i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseCompleted, "saved 2 shards with 3 logical clusters, and 3 Secrets")
	status := i.backup.Status
	if status.Duration != "1m30s" || status.Size.String() != "21Mi" || status.SnapshotSize.String() != "100" || status.ManifestDigest != "digest" {
		t.Errorf("the status is %+v", status)
	}
	if !meta.IsStatusConditionTrue(status.Conditions, operatorv1alpha1.ConditionReady) {
		t.Errorf("the conditions are %+v", status.Conditions)
	}
	// What happens later does not change it.
	if err := i.client.Delete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseCompleted, "saved 2 shards")
}

func TestFailures(t *testing.T) {
	failed := []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Message: "reached its deadline"}}
	for name, tc := range map[string]struct {
		message    string
		conditions []batchv1.JobCondition
		phase      operatorv1alpha1.BackupPhase
		want       string
	}{
		"an attempt that fails is repeated":       {`{"error":"bucket b is full"}`, nil, operatorv1alpha1.BackupPhaseRunning, "the last attempt failed and is repeated: bucket b is full"},
		"the last one has the reason":             {`{"error":"bucket b is full"}`, failed, operatorv1alpha1.BackupPhaseFailed, "bucket b is full; then create another Backup"},
		"a pod that was killed says nothing more": {"", failed, operatorv1alpha1.BackupPhaseFailed, "the pod ended with Error"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t)
			i.reconcile()
			i.end(tc.message, 1)
			job := &batchv1.Job{ObjectMeta: named("daily-backup")}
			i.get(job)
			job.Status.Conditions = tc.conditions
			if err := i.client.Status().Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			i.expect(i.reconcile(), tc.phase, tc.want)
			if stalled := meta.IsStatusConditionTrue(i.backup.Status.Conditions, operatorv1alpha1.ConditionStalled); stalled != (tc.phase == operatorv1alpha1.BackupPhaseFailed) {
				t.Errorf("the conditions are %+v", i.backup.Status.Conditions)
			}
		})
	}
	t.Run("a Job that is deleted fails the Backup", func(t *testing.T) {
		i := newInstallation(t)
		i.reconcile()
		if err := i.client.Delete(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "daily-backup", Namespace: namespace}}); err != nil {
			t.Fatal(err)
		}
		i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseFailed, "was deleted before it ended")
	})
}

func TestWaiting(t *testing.T) {
	t.Run("for a store that is ready", func(t *testing.T) {
		i := newInstallation(t)
		i.store.Status.Conditions[0].Status = metav1.ConditionFalse
		if err := i.client.Status().Update(t.Context(), i.store); err != nil {
			t.Fatal(err)
		}
		i.expect(i.reconcile(), operatorv1alpha1.BackupPhasePending, "BackupStore store is not ready")
		if err := i.client.Delete(t.Context(), i.store); err != nil {
			t.Fatal(err)
		}
		i.expect(i.reconcile(), operatorv1alpha1.BackupPhasePending, "BackupStore store does not exist")
	})
	t.Run("for the RootShard", func(t *testing.T) {
		i := newInstallation(t)
		if err := i.client.Delete(t.Context(), &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: namespace}}); err != nil {
			t.Fatal(err)
		}
		i.reconcile()
		if reference := meta.FindStatusCondition(i.backup.Status.Conditions, operatorv1alpha1.ConditionRootShard); reference == nil || reference.Status != metav1.ConditionFalse {
			t.Errorf("the condition is %+v", reference)
		}
	})
	t.Run("for an older Backup", func(t *testing.T) {
		older := newBackup("older", time.Hour)
		older.UID = "other"
		i := newInstallation(t, older)
		i.expect(i.reconcile(), operatorv1alpha1.BackupPhasePending, "Backup older of this installation comes first")
	})
}

func TestOrder(t *testing.T) {
	with := func(backup *operatorv1alpha1.Backup, phase operatorv1alpha1.BackupPhase, reason string) *operatorv1alpha1.Backup {
		backup.Status.Phase = phase
		backup.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionCompleted, Reason: reason}}
		return backup
	}
	for name, tc := range map[string]struct {
		other *operatorv1alpha1.Backup
		want  bool
	}{
		"one that runs":                       {with(newBackup("b", -time.Hour), operatorv1alpha1.BackupPhaseRunning, reasonRunning), true},
		"an older one that nobody has read":   {newBackup("b", time.Hour), true},
		"an older one that waits as well":     {with(newBackup("b", time.Hour), operatorv1alpha1.BackupPhasePending, reasonQueued), true},
		"an older one that waits for a store": {with(newBackup("b", time.Hour), operatorv1alpha1.BackupPhasePending, reasonStoreNotReady), false},
		"a younger one":                       {newBackup("b", -time.Hour), false},
		"one of the same time by its name":    {newBackup("a", 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isBefore(tc.other, newBackup("b", 0)); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
