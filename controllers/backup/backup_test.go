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
	"k8s.io/utils/ptr"
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

const (
	namespace = "kcp"
	// runName is the name of the Job and the ConfigMap of the Backup.
	runName = "daily-11111111"
)

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
	// An optional Secret, and one in the environment, of servers other than shards.
	virtual := &operatorv1alpha1.VirtualWorkspace{ObjectMeta: named("virtual")}
	virtual.Spec.Target.ShardRef = &corev1.LocalObjectReference{Name: "alpha"}
	views := &appsv1.Deployment{ObjectMeta: named("virtual")}
	views.OwnerReferences = desired.NewOwnerReferences("VirtualWorkspace", virtual)
	views.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "optional", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "optional", Optional: ptr.To(true)}}}}
	views.Spec.Template.Spec.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "environment"}}}}}}
	i := &installation{t: t, store: &operatorv1alpha1.BackupStore{ObjectMeta: named("store")}, backup: newBackup("daily", 0)}
	i.store.Spec = operatorv1alpha1.BackupStoreSpec{
		EndpointURL: "https://s3.example.com", Bucket: "backups", Prefix: "prod",
		S3Credentials: operatorv1alpha1.S3Credentials{AccessKeyID: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"}, SecretAccessKey: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "key"}},
		EndpointCA:    &operatorv1alpha1.SecretKeyReference{Name: "s3-ca", Key: "ca.crt"},
		Encryption:    operatorv1alpha1.BackupEncryption{Recipients: []string{"age1example"}},
	}
	i.store.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	i.client = memory.NewClient(t, append([]client.Object{
		root, shard, i.store, i.backup, server, virtual, views, secret("optional", nil), secret("environment", nil), secret("root-ca", issued), secret("root-service-account", issued), secret("root-server", issued), secret("encryption", nil),
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
	i.addPod(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message, ExitCode: code, Reason: "Error"}},
	}}})
}

func (i *installation) addPod(status corev1.PodStatus) {
	i.t.Helper()
	pod := &corev1.Pod{ObjectMeta: named("pod"), Status: status}
	pod.Labels = map[string]string{batchv1.JobNameLabel: runName}
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
	i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseRunning, "Job daily-11111111 saves the installation")
	job, configMap := &batchv1.Job{ObjectMeta: named(runName)}, &corev1.ConfigMap{ObjectMeta: named(runName)}
	i.get(job)
	i.get(configMap)
	for _, object := range []client.Object{job, configMap} {
		object.SetResourceVersion("")
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	golden.Check[client.Object](t, "run", configMap, job)

	message, err := json.Marshal(config.Result{
		BackupID: "20300102T030405Z-11111111-22222222", DestinationPath: "s3://backups/prod/kcp/root/20300102T030405Z-11111111-22222222",
		StartedAt: created.Time, StoppedAt: created.Add(90 * time.Second), ManifestDigest: "digest", Size: 20<<20 + 1, SnapshotSize: 100, Shards: 2, LogicalClusters: 3, Secrets: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	i.end(string(message), 0)
	i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseCompleted, "saved 2 shards with 3 logical clusters, and 3 Secrets")
	status := i.backup.Status
	if status.Duration != "1m30s" || status.Size.String() != "21Mi" || status.SnapshotSize.String() != "100" || status.ManifestDigest != "digest" ||
		status.BackupID != "20300102T030405Z-11111111-22222222" || status.DestinationPath != "s3://backups/prod/kcp/root/20300102T030405Z-11111111-22222222" {
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

// TestTokenKeysOfRekeying: a Backup that takes long may save tokens of the keys that shards only get while it begins.
func TestTokenKeysOfRekeying(t *testing.T) {
	var objects []client.Object
	for _, name := range []string{"root-service-account-2", "alpha-service-account", "root-service-account-3"} {
		secret := &corev1.Secret{ObjectMeta: named(name), Data: map[string][]byte{"tls.crt": []byte("certificate")}}
		secret.Annotations = map[string]string{certmanagerv1.CertificateNameKey: name}
		objects = append(objects, secret)
	}
	i := newInstallation(t, objects...)
	root := &operatorv1alpha1.RootShard{ObjectMeta: named("root")}
	i.get(root)
	root.Status.Certificates = &operatorv1alpha1.CertificatesStatus{CAs: []operatorv1alpha1.CertificateAuthorityStatus{{
		Name: operatorv1alpha1.ServiceAccountKeys, Phase: operatorv1alpha1.CertificateAuthorityTrustBoth, Generation: 1, NextGeneration: 2,
	}}}
	if err := i.client.Status().Update(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	i.reconcile()
	configMap := &corev1.ConfigMap{ObjectMeta: named(runName)}
	i.get(configMap)
	for _, text := range configMap.Data {
		for name, want := range map[string]bool{"root-service-account": true, "root-service-account-2": true, "alpha-service-account": true, "root-service-account-3": false, "alpha-service-account-2": false} {
			if got := strings.Contains(text, "name: "+name+"\n"); got != want {
				t.Errorf("Secret %s is saved: %t", name, got)
			}
		}
	}
}

// TestRecreated creates a Backup again under its name while what the first has left is still there.
func TestRecreated(t *testing.T) {
	i := newInstallation(t)
	i.reconcile()
	i.end(`{"manifestDigest":"old"}`, 0)
	i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseCompleted, "saved 0 shards")
	if err := i.client.Delete(t.Context(), i.backup); err != nil {
		t.Fatal(err)
	}
	i.backup = newBackup("daily", 0)
	i.backup.UID = "33333333-4444"
	if err := i.client.Create(t.Context(), i.backup); err != nil {
		t.Fatal(err)
	}
	i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseRunning, "Job daily-33333333 saves the installation")
	i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseRunning, "it has no pod yet; if that lasts, the events of Job daily-33333333 say why")
	i.get(&batchv1.Job{ObjectMeta: named("daily-33333333")})
}

// TestLostStatus loses what the reconcile that creates the Job writes, as a conflict does.
func TestLostStatus(t *testing.T) {
	i := newInstallation(t)
	i.reconcile()
	job := &batchv1.Job{ObjectMeta: named(runName)}
	i.get(job)
	job.CreationTimestamp = created
	if err := i.client.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	i.backup.Status = operatorv1alpha1.BackupStatus{Phase: operatorv1alpha1.BackupPhasePending}
	if err := i.client.Status().Update(t.Context(), i.backup); err != nil {
		t.Fatal(err)
	}
	i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseRunning, "saves the installation")
	if started := i.backup.Status.StartedAt; started == nil || !started.Equal(&created) {
		t.Errorf("it started at %v", started)
	}
}

// TestWaitingPods reports what keeps pods from starting.
func TestWaitingPods(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "backup", Image: "atoll:v1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
	}
	for name, tc := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"an image that is missing": {waiting("ErrImagePull", "not found"), "installation; image atoll:v1 of container backup cannot be pulled: not found"},
		"a cluster that is full": {corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available",
		}}}, "installation; a pod cannot be scheduled: 0/3 nodes are available"},
		"a volume that is not mounted": {waiting("ContainerCreating", ""), "installation; pod pod has not started; if that lasts, its events say why"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t)
			i.reconcile()
			i.addPod(tc.status)
			i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseRunning, tc.want)
		})
	}
}

func TestFailures(t *testing.T) {
	with := func(kind batchv1.JobConditionType, reason, message string) []batchv1.JobCondition {
		return []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}}
	}
	failed := with(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "reached the backoff limit")
	deadline := with(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded, "reached its deadline")
	for name, tc := range map[string]struct {
		message    string
		conditions []batchv1.JobCondition
		phase      operatorv1alpha1.BackupPhase
		want       string
	}{
		"an attempt that fails is repeated":       {`{"error":"bucket b is full"}`, nil, operatorv1alpha1.BackupPhaseRunning, "the last attempt failed and is repeated: bucket b is full"},
		"the last one has the reason":             {`{"error":"bucket b is full"}`, failed, operatorv1alpha1.BackupPhaseFailed, "bucket b is full. Correct the cause, and create another Backup"},
		"one that is ended by its deadline":       {`{"error":"writing x: context canceled"}`, deadline, operatorv1alpha1.BackupPhaseFailed, "it did not end within 6h0m0s: raise maxUploadRate"},
		"a result that is lost may be a backup":   {"", with(batchv1.JobComplete, "", ""), operatorv1alpha1.BackupPhaseFailed, "look for folders 20300102T030405Z-11111111-* with manifest.json in the store"},
		"a pod that was killed says nothing more": {"", failed, operatorv1alpha1.BackupPhaseFailed, "pod pod ended with Error: read its log. Correct the cause"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t)
			i.reconcile()
			i.end(tc.message, 1)
			job := &batchv1.Job{ObjectMeta: named(runName)}
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
		if err := i.client.Delete(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: runName, Namespace: namespace}}); err != nil {
			t.Fatal(err)
		}
		i.expect(i.reconcile(), operatorv1alpha1.BackupPhaseFailed, "Job daily-11111111 is gone, and its result with it")
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
	otherStore := newBackup("b", time.Hour)
	otherStore.Spec.StoreRef.Name = "other"
	for name, tc := range map[string]struct {
		other *operatorv1alpha1.Backup
		want  bool
	}{
		"one that runs":                          {with(newBackup("b", -time.Hour), operatorv1alpha1.BackupPhaseRunning, reasonRunning), true},
		"an older one that nobody has read":      {newBackup("b", time.Hour), true},
		"an older one that waits as well":        {with(newBackup("b", time.Hour), operatorv1alpha1.BackupPhasePending, reasonQueued), true},
		"an older one that waits for this store": {with(newBackup("b", time.Hour), operatorv1alpha1.BackupPhasePending, reasonStoreNotReady), true},
		"an older one that waits for another":    {with(otherStore, operatorv1alpha1.BackupPhasePending, reasonStoreNotReady), false},
		"a younger one":                          {newBackup("b", -time.Hour), false},
		"one of the same time by its name":       {newBackup("a", 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isBefore(tc.other, newBackup("b", 0)); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
