package restore

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/shardcompare"
)

func newShardRestore(discard bool) *operatorv1alpha1.Restore {
	out := newRestore()
	out.Spec.Shard = &operatorv1alpha1.RestoreShard{Name: "alpha", DiscardData: discard}
	return out
}

// newShard is a Shard that names the Restore.
func newShard() *operatorv1alpha1.Shard {
	out := &operatorv1alpha1.Shard{ObjectMeta: named("alpha")}
	out.UID = "alpha"
	out.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: "back"}
	out.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	out.Status.Etcd = &operatorv1alpha1.EtcdStatus{ClusterID: "c1"}
	return out
}

// newRunningRoot is a RootShard that awaits no Restore.
func newRunningRoot() *operatorv1alpha1.RootShard {
	out := newRoot()
	out.Annotations = nil
	return out
}

func readyStore() *operatorv1alpha1.BackupStore {
	out := &operatorv1alpha1.BackupStore{ObjectMeta: named("store")}
	out.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	return out
}

// TestShardWaits has what is found before anything is read of the store.
func TestShardWaits(t *testing.T) {
	shard := func(change func(*operatorv1alpha1.Shard)) client.Object {
		out := newShard()
		change(out)
		return out
	}
	other := newRestore()
	other.Name, other.UID, other.Status.Phase = "other", "other", operatorv1alpha1.RestorePhaseRunning
	for name, tc := range map[string]struct {
		objects      []client.Object
		phase        operatorv1alpha1.RestorePhase
		reason, text string
	}{
		"no RootShard":            {[]client.Object{readyStore()}, "Pending", "ReferenceNotFound", "for an installation that runs"},
		"no Shard":                {[]client.Object{readyStore(), newRunningRoot()}, "Pending", "ReferenceNotFound", "RootShard root has no Shard alpha"},
		"one that does not agree": {[]client.Object{readyStore(), newRunningRoot(), shard(func(s *operatorv1alpha1.Shard) { s.Annotations = nil })}, "Pending", "NotAnnotated", "set its annotation operator.kcp.io/restore: back"},
		"one with an etcd of the user": {[]client.Object{readyStore(), newRunningRoot(), shard(func(s *operatorv1alpha1.Shard) {
			s.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Endpoints: []string{"https://etcd:2379"}}
		})}, "Failed", "NotSupported", "shard alpha has an etcd of its own"},
		"an installation that has not started": {[]client.Object{readyStore(), newRoot(), newShard()}, "Pending", "AwaitsRestore", "RootShard root has not started"},
		"another Restore that runs":            {[]client.Object{readyStore(), newRunningRoot(), newShard(), other}, "Pending", "Running", "Restore other of the same installation has not ended"},
		"a shard that serves":                  {[]client.Object{readyStore(), newRunningRoot(), newShard(), &appsv1.StatefulSet{ObjectMeta: named("alpha-etcd")}}, "Pending", "SecretNotFound", "create it"},
	} {
		t.Run(name, func(t *testing.T) {
			restore, condition := reconcileOnce(t, memory.NewClient(t, append(tc.objects, newShardRestore(true))...), &releaser{}, operatorv1alpha1.ConditionCompleted)
			if restore.Status.Phase != tc.phase || condition.Reason != tc.reason || !strings.Contains(condition.Message, tc.text) {
				t.Errorf("phase %s, condition %+v", restore.Status.Phase, condition)
			}
		})
	}
}

// TestShardCompare compares manifests with an installation that runs, and what the shard has with the backup.
func TestShardCompare(t *testing.T) {
	taken := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	serving := etcd.Facts{ClusterID: "c1", Members: []etcd.MemberFacts{{Serving: true}}}
	empty, down := etcd.Facts{Members: []etcd.MemberFacts{{Empty: true}}}, etcd.Facts{Members: []etcd.MemberFacts{{}}}
	with := func(change func(*manifest.Manifest)) func(*manifest.Manifest) { return change }
	for name, tc := range map[string]struct {
		discard      bool
		answer       releaser
		noVolume     bool
		change       func(*manifest.Manifest)
		reason, text string
	}{
		"volumes that are empty":          {false, releaser{facts: empty}, false, nil, "", ""},
		"volumes that do not exist":       {false, releaser{facts: serving}, true, nil, "", ""},
		"a shard that serves":             {false, releaser{facts: serving, revision: 150}, false, nil, "InstallationHasData", "the etcd of shard alpha serves, and has 50 writes of the time since the backup of 2030-01-02T03:04:05Z (1h0m0s ago). If that is to be lost, create another Restore with shard.discardData: true"},
		"one that was restored since":     {false, releaser{facts: serving, revision: 1_000_000_150}, false, nil, "InstallationHasData", "has what was written since"},
		"one that does not answer":        {false, releaser{facts: down}, false, nil, "InstallationHasData", "may have all that was written since the backup of 2030-01-02T03:04:05Z"},
		"what the user discards":          {true, releaser{facts: serving, revision: 150}, false, nil, "", ""},
		"moves that can end":              {true, releaser{facts: serving, migrations: []string{"m"}}, false, nil, "Migrating", "have not ended: m"},
		"moves that cannot":               {true, releaser{facts: down, migrations: []string{"m"}}, false, nil, "", ""},
		"another namespace":               {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Installation.Namespace = "old" }), "OtherOwner", "from a backup of its own installation"},
		"another cluster":                 {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Installation.KubernetesCluster = "other" }), "OtherOwner", "from a backup of its own installation"},
		"an earlier installation":         {true, releaser{}, false, with(func(m *manifest.Manifest) { m.CutStoppedAt = taken.Add(-48 * time.Hour) }), "OtherOwner", "an earlier installation of the same name"},
		"a backup without the shard":      {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Shards = m.Shards[:1] }), "ShardsDiffer", "has no shard alpha"},
		"a backup with more shards":       {true, releaser{facts: empty}, false, with(func(m *manifest.Manifest) { m.Shards = append(m.Shards, manifest.Shard{Name: "gone"}) }), "", ""},
		"another prefix":                  {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Shards[1].Prefix = "/other" }), "ShardsDiffer", "set its etcd.prefix to /other"},
		"another version":                 {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Installation.Version = "atoll:v0" }), "OtherVersion", "restore a backup of this version"},
		"a root shard with other volumes": {true, releaser{facts: empty}, false, with(func(m *manifest.Manifest) { m.Shards[0].Prefix = "/other" }), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root, restore, report := newRunningRoot(), newShardRestore(tc.discard), &status.Report{}
			root.CreationTimestamp = metav1.NewTime(taken.Add(-24 * time.Hour))
			objects := []client.Object{root, newShard(), &corev1.Secret{ObjectMeta: named("alpha-etcd-client")}}
			if !tc.noVolume {
				objects = append(objects, &corev1.PersistentVolumeClaim{ObjectMeta: named("data-alpha-etcd-0")})
			}
			c := apply.Cluster{Client: memory.NewClient(t, objects...)}
			installation, err := observeInstallation(t.Context(), c, root, restore.Spec.Shard)
			if err != nil {
				t.Fatal(err)
			}
			saved := &manifest.Manifest{
				Installation: manifest.Installation{KubernetesCluster: "cluster", Namespace: "kcp", RootShard: "root"}, CutStartedAt: taken, CutStoppedAt: taken,
				Shards: []manifest.Shard{{Name: "root", Prefix: "/registry"}, {Name: "alpha", Prefix: "/registry", RevisionFrom: 100, RevisionTo: 100}},
			}
			if tc.change != nil {
				tc.change(saved)
			}
			s := &scope{
				config: reconcile.Config{Cluster: c, ClusterID: "cluster", Now: func() time.Time { return taken.Add(time.Hour) }, Image: desired.Image{Repository: "atoll", Tag: "v1"}},
				etcds:  &tc.answer, servers: &tc.answer, report: report, restore: restore, root: root, installation: installation,
			}
			if err = s.compare(t.Context(), saved); err == nil {
				err = s.checkLoss(t.Context(), saved)
			}
			result := report.Get(operatorv1alpha1.ConditionCompleted)
			if (err != nil) != (tc.reason != "") || result.Reason != tc.reason || !strings.Contains(result.Message, tc.text) {
				t.Errorf("%v: %+v", err, result)
			}
		})
	}
}

// TestShardCourse follows a Restore from the moment at which the backup was read: nothing is deleted before the Shard says that it is stopped, no
// volume claim of the Restore itself is deleted, and no Job runs before all others are gone.
func TestShardCourse(t *testing.T) {
	restore, shard, started := newShardRestore(true), newShard(), metav1.Now()
	restore.Status.Phase, restore.Status.StartedAt, restore.Status.Shards, restore.Status.Shard = operatorv1alpha1.RestorePhaseRunning, &started, []string{"alpha"}, &operatorv1alpha1.RestoreShardStatus{ReplacedEtcdClusterID: "c1"}
	set := &appsv1.StatefulSet{ObjectMeta: named("alpha-etcd")}
	pod := &corev1.Pod{ObjectMeta: named("alpha-shard-kcp-1")}
	pod.Labels = desired.NewShard(shard, newRunningRoot()).Labels()
	old := &corev1.PersistentVolumeClaim{ObjectMeta: named("data-alpha-etcd-0")}
	old.Annotations, old.Finalizers, old.UID = map[string]string{operatorv1alpha1.AnnotationRestore: "back"}, []string{"kubernetes.io/pvc-protection"}, "old" // of an earlier Restore of this name
	c := memory.NewClient(t, restore, shard, set, pod, old, newRunningRoot(), readyStore())
	claim, jobs := &corev1.PersistentVolumeClaim{}, &batchv1.JobList{}
	next := func(text string, mayDelete bool) {
		t.Helper()
		_, completed := reconcileOnce(t, c, &releaser{}, operatorv1alpha1.ConditionCompleted)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(old), claim); err != nil {
			t.Fatal(err)
		}
		if err := c.List(t.Context(), jobs); err != nil || len(jobs.Items) > 0 != (text == "") {
			t.Fatalf("%v: %d Jobs, %s", err, len(jobs.Items), completed.Message)
		}
		if !strings.Contains(completed.Message, text) || (claim.DeletionTimestamp != nil) != mayDelete {
			t.Fatalf("got %q, claim %+v", completed.Message, claim.ObjectMeta)
		}
	}
	next("Shard alpha is being stopped", false)
	stopped := dependencies.ShardStopped(restore)
	meta.SetStatusCondition(&shard.Status.Conditions, metav1.Condition{Type: stopped.Type, Status: metav1.ConditionFalse, Reason: stopped.Reason, Message: stopped.Message})
	if err := c.Status().Update(t.Context(), shard); err != nil {
		t.Fatal(err)
	}
	next("StatefulSet alpha-etcd exists", false)
	if err := c.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	next("pod alpha-shard-kcp-1 has not ended", false)
	if err := c.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	next("PersistentVolumeClaim data-alpha-etcd-0 is being deleted", true)
	claim.Finalizers = nil
	if err := c.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		next("", false)
	}
	if claim.UID == "old" || len(jobs.Items) != 1 || !slices.Contains(jobs.Items[0].Spec.Template.Spec.Containers[0].Args, "--shard=alpha") {
		t.Errorf("claim %+v, Jobs %+v", claim.ObjectMeta, jobs.Items)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "kcp", Name: "root-ca"}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Secret of the installation: %v", err)
	}
}

// TestConsistent compares a restored shard until it is released.
func TestConsistent(t *testing.T) {
	restore, now := newShardRestore(true), metav1.Now()
	restore.Status.Phase, restore.Status.StoppedAt, restore.Status.Shards, restore.Status.Shard = operatorv1alpha1.RestorePhaseCompleted, &now, []string{"alpha"}, &operatorv1alpha1.RestoreShardStatus{}
	r := &releaser{err: apierrors.NewServiceUnavailable("later")}
	c := memory.NewClient(t, restore, newShard(), newRunningRoot())
	next := func(reason, text string, compared int) {
		t.Helper()
		out, condition := reconcileOnce(t, c, r, operatorv1alpha1.ConditionConsistent)
		if condition.Reason != reason || !strings.Contains(condition.Message, text) || r.compared != compared {
			t.Errorf("got %+v after %d comparisons", condition, r.compared)
		}
		if !meta.IsStatusConditionTrue(out.Status.Conditions, operatorv1alpha1.ConditionReady) {
			t.Errorf("the Restore is not ready: %+v", out.Status.Conditions)
		}
		restore = out
	}
	next("Unavailable", "later", 1)
	r.err, r.found = nil, shardcompare.Result{Gaps: []string{"root/a (c-a)"}, Orphans: strings.Split(strings.Repeat("o,", 11)+"o", ",")}
	next("Differs", "1 Workspaces without a logical cluster", 2)
	next("Differs", "12 logical clusters without a Workspace, which were deleted after the backup or whose Workspace was created since: o, o, o, o, o, o, o, o, o, o and 2 more", 2)
	restore.Status.Shard.ComparedAt.Time = restore.Status.Shard.ComparedAt.Add(-compareInterval)
	if err := c.Status().Update(t.Context(), restore); err != nil {
		t.Fatal(err)
	}
	r.found = shardcompare.Result{}
	next("NothingDiffers", "every Workspace", 3)
	restore.Spec.Release = true
	if err := c.Update(t.Context(), restore); err != nil {
		t.Fatal(err)
	}
	next("NothingDiffers", "every Workspace", 3)
}
