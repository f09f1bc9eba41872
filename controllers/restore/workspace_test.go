package restore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/internal/backup/config"
)

func newWorkspaceRestore() *operatorv1alpha1.Restore {
	out := newRestore()
	out.Spec.Workspace = &operatorv1alpha1.RestoreWorkspace{Path: "root:acme:team"}
	out.Spec.Identity = operatorv1alpha1.SecretKeyReference{Name: "age", Key: "key.txt"}
	return out
}

// newRunning are the objects of an installation that runs, with an etcd of the user for one of its shards.
func newRunning() []client.Object {
	root := newRoot()
	root.Annotations = nil
	root.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionAvailable, Status: metav1.ConditionTrue}}
	alpha := &operatorv1alpha1.Shard{ObjectMeta: named("alpha")}
	alpha.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	alpha.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Endpoints: []string{"https://etcd:2379"}, Prefix: "/alpha"}
	store := &operatorv1alpha1.BackupStore{ObjectMeta: named("store")}
	store.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	return []client.Object{root, alpha, store}
}

// TestWorkspaceWaits has what is found before a Job runs.
func TestWorkspaceWaits(t *testing.T) {
	running := newRunning()
	starting := newRoot()
	for name, tc := range map[string]struct {
		objects []client.Object
		reason  string
	}{
		"no RootShard":                  {running[1:], "ReferenceNotFound"},
		"no BackupStore":                {running[:2], "ReferenceNotFound"},
		"a RootShard that does not run": {append([]client.Object{starting}, running[1:]...), "NotRunning"},
		"no identity":                   {running, "SecretNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for _, object := range append([]client.Object{newWorkspaceRestore()}, tc.objects...) {
				objects = append(objects, object.DeepCopyObject().(client.Object))
			}
			restore, condition := reconcileOnce(t, memory.NewClient(t, objects...), nil, operatorv1alpha1.ConditionCompleted)
			if restore.Status.Phase != operatorv1alpha1.RestorePhasePending || condition.Reason != tc.reason {
				t.Errorf("phase %s, condition %+v", restore.Status.Phase, condition)
			}
		})
	}
}

// TestWorkspaceJob runs the Job, and plays its pod.
func TestWorkspaceJob(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity := &corev1.Secret{ObjectMeta: named("age"), Data: map[string][]byte{"key.txt": []byte(key.String())}}
	for name, tc := range map[string]struct {
		exitCode      int32
		message       string
		jobCondition  batchv1.JobConditionType
		phase         operatorv1alpha1.RestorePhase
		reason, wants string
	}{
		"success": {0, `{"backupId":"id","takenAt":"2030-01-02T03:04:05Z","workspace":"logical cluster c on shard alpha, 12 objects"}`, batchv1.JobComplete, "Completed", "Restored", "root:acme:team: logical cluster c on shard alpha"},
		"refusal": {1, `{"error":"workspace root:acme:team exists"}`, batchv1.JobFailed, "Failed", "Failed", "workspace root:acme:team exists. Correct the cause"},
		"killed":  {137, "", batchv1.JobFailed, "Failed", "Failed", "It was ended before it could report: find out whether workspace root:acme:team is back"},
	} {
		t.Run(name, func(t *testing.T) {
			c := memory.NewClient(t, append(newRunning(), newWorkspaceRestore(), identity.DeepCopy())...)
			restore, condition := reconcileOnce(t, c, nil, operatorv1alpha1.ConditionCompleted)
			if restore.Status.Phase != operatorv1alpha1.RestorePhaseRunning || restore.Status.StartedAt == nil || condition.Reason != "Running" {
				t.Fatalf("phase %s, condition %+v", restore.Status.Phase, condition)
			}
			job, configMap := &batchv1.Job{}, &corev1.ConfigMap{}
			for _, object := range []client.Object{job, configMap} {
				if err := c.Get(t.Context(), client.ObjectKey{Namespace: "kcp", Name: "back-11111111"}, object); err != nil {
					t.Fatal(err)
				}
			}
			checkWorkspaceJob(t, job, configMap)

			pod := &corev1.Pod{ObjectMeta: named("back-pod")}
			pod.Labels = map[string]string{batchv1.JobNameLabel: job.Name}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: tc.exitCode, Message: tc.message}}}}
			job.Status.Conditions = []batchv1.JobCondition{{Type: tc.jobCondition, Status: corev1.ConditionTrue}}
			if err := c.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if err := c.Status().Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time, nothing changes
				restore, condition = reconcileOnce(t, c, nil, operatorv1alpha1.ConditionCompleted)
				if restore.Status.Phase != tc.phase || condition.Reason != tc.reason || !strings.Contains(condition.Message, tc.wants) {
					t.Errorf("phase %s, condition %+v", restore.Status.Phase, condition)
				}
				if !meta.IsStatusConditionTrue(restore.Status.Conditions, operatorv1alpha1.ConditionReleased) {
					t.Errorf("schedules would keep Backups for ever: %+v", restore.Status.Conditions)
				}
			}
		})
	}
}

// TestWorkspaceJobDeleted deletes the Job.
func TestWorkspaceJobDeleted(t *testing.T) {
	restore := newWorkspaceRestore()
	restore.Status.StartedAt = &metav1.Time{Time: time.Now()}
	_, condition := reconcileOnce(t, memory.NewClient(t, append(newRunning(), restore)...), nil, operatorv1alpha1.ConditionCompleted)
	if condition.Reason != "Failed" || !strings.Contains(condition.Message, "was deleted before its result was read") {
		t.Errorf("condition %+v", condition)
	}
}

func checkWorkspaceJob(t *testing.T, job *batchv1.Job, configMap *corev1.ConfigMap) {
	t.Helper()
	container := job.Spec.Template.Spec.Containers[0]
	if !slices.Equal(container.Command, []string{"/etcd", "backup", "restore-workspace"}) || !slices.Contains(container.Args, "--workspace=root:acme:team") || *job.Spec.BackoffLimit != 0 {
		t.Errorf("the Job runs %v %v", container.Command, container.Args)
	}
	cfg := &config.Backup{}
	if err := yaml.UnmarshalStrict([]byte(configMap.Data[configKey]), cfg); err != nil {
		t.Fatal(err)
	}
	if len(cfg.Shards) != 2 || cfg.Shards[0].Name != "root" || cfg.Shards[1].Prefix != "/alpha" || cfg.Shards[1].Endpoints[0] != "https://etcd:2379" {
		t.Fatalf("the shards are %+v", cfg.Shards)
	}
	if directory := cfg.Shards[0].CredentialsDirectory; !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == directory }) {
		t.Errorf("the certificates of the etcd are expected in %q, and the pod mounts %+v", directory, container.VolumeMounts)
	}
}
