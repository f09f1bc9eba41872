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
	"k8s.io/utils/ptr"
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

// ofShard are the metadata of an object of the Shard.
func ofShard(name string) metav1.ObjectMeta {
	out := named(name)
	out.OwnerReferences = desired.NewOwnerReferences("Shard", newShard())
	return out
}

// newClaim is the volume claim of the Shard, which the Restore that is named has filled.
func newClaim(filled string) *corev1.PersistentVolumeClaim {
	out := &corev1.PersistentVolumeClaim{ObjectMeta: named("data-alpha-etcd-0")}
	out.Labels = etcd.ShardVolumeClaimLabels("alpha")
	if filled != "" {
		out.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: filled}
	}
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
		"an installation that has not started":       {[]client.Object{readyStore(), newRoot(), newShard()}, "Pending", "AwaitsRestore", "RootShard root has not started"},
		"another Restore that runs":                  {[]client.Object{readyStore(), newRunningRoot(), newShard(), other}, "Pending", "Running", "Restore other of the same installation has not ended: wait for it, or delete it"},
		"a shard that serves":                        {[]client.Object{readyStore(), newRunningRoot(), newShard(), &appsv1.StatefulSet{ObjectMeta: ofShard("alpha-etcd")}, newClaim("")}, "Pending", "SecretNotFound", "create it"},
		"one that a Restore of this name has filled": {[]client.Object{readyStore(), newRunningRoot(), newShard(), newClaim("back-33333333")}, "Failed", "InstallationHasData", "a Restore of this name has filled shard alpha before"},
		"one that this Restore has filled":           {[]client.Object{readyStore(), newRunningRoot(), newShard(), newClaim("back-11111111")}, "Pending", "SecretNotFound", "create it"},
		"one that another Restore has filled":        {[]client.Object{readyStore(), newRunningRoot(), newShard(), newClaim("back-2-33333333")}, "Pending", "SecretNotFound", "create it"},
		"the etcd of a CacheServer": {[]client.Object{readyStore(), newRunningRoot(), newShard(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
			Name: "alpha-etcd", Namespace: "kcp", OwnerReferences: desired.NewOwnerReferences("CacheServer", newShard()),
		}}}, "Pending", "SecretNotFound", "create it"},
		"the etcd of another object": {[]client.Object{readyStore(), newRunningRoot(), newShard(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
			Name: "alpha-etcd", Namespace: "kcp", OwnerReferences: desired.NewOwnerReferences("CacheServer", newRestore()),
		}}}, "Failed", "NotSupported", "StatefulSet alpha-etcd belongs to CacheServer back, and not to Shard alpha"},
		"a Deployment of its own":    {[]client.Object{readyStore(), newRunningRoot(), newShard(), &appsv1.Deployment{ObjectMeta: named("alpha-shard-kcp")}}, "Failed", "NotSupported", "Deployment alpha-shard-kcp belongs to no other object"},
		"a volume without the label": {[]client.Object{readyStore(), newRunningRoot(), newShard(), &corev1.PersistentVolumeClaim{ObjectMeta: named("data-alpha-etcd-0")}}, "Failed", "NotSupported", "not its label operator.kcp.io/shard=alpha"},
		"one that is being deleted": {[]client.Object{readyStore(), newRunningRoot(), shard(func(s *operatorv1alpha1.Shard) {
			s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: time.Now()}, []string{operatorv1alpha1.FinalizerShard}
		})}, "Pending", "ReferenceNotFound", "set its annotation operator.kcp.io/force-delete=true"},
	} {
		t.Run(name, func(t *testing.T) {
			restore, condition := reconcileOnce(t, memory.NewClient(t, append(tc.objects, newShardRestore(true))...), &releaser{}, operatorv1alpha1.ConditionCompleted)
			if restore.Status.Phase != tc.phase || condition.Reason != tc.reason || !strings.Contains(condition.Message, tc.text) {
				t.Errorf("phase %s, condition %+v", restore.Status.Phase, condition)
			}
		})
	}
}

// TestShardChanges has what changes after a Restore has started: none of it deletes a volume claim.
func TestShardChanges(t *testing.T) {
	root := newRunningRoot()
	for name, tc := range map[string]struct {
		change       func(*operatorv1alpha1.Shard)
		phase        operatorv1alpha1.RestorePhase
		reason, text string
		gone         bool // the BackupStore
	}{
		"nothing":                 {func(*operatorv1alpha1.Shard) {}, "Running", "Running", "Shard alpha is being stopped", false},
		"it names nothing":        {func(s *operatorv1alpha1.Shard) { s.Annotations = nil }, "Failed", "NotAnnotated", "withdrawn: Shard alpha does not name this Restore any more", false},
		"it names another one":    {func(s *operatorv1alpha1.Shard) { s.Annotations[operatorv1alpha1.AnnotationRestore] = "other" }, "Failed", "NotAnnotated", "create another Restore", false},
		"while it waits for more": {func(s *operatorv1alpha1.Shard) { s.Annotations = nil }, "Failed", "NotAnnotated", "withdrawn", true},
		"more members": {func(s *operatorv1alpha1.Shard) {
			s.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To[int32](3)}}
		}, "Running", "ShardsDiffer", "set etcd.managed.replicas and clusterDomain of the Shard back", false},
		"other names of members": {func(s *operatorv1alpha1.Shard) { s.Spec.ClusterDomain = "example.com" }, "Running", "ShardsDiffer", "set etcd.managed.replicas and clusterDomain of the Shard back", false},
		"another prefix": {func(s *operatorv1alpha1.Shard) {
			s.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Prefix: "/other", Managed: &operatorv1alpha1.ManagedEtcd{}}
		}, "Running", "ShardsDiffer", "have the prefix /other, and this Restore has begun with /registry", false},
		"no volumes": {func(s *operatorv1alpha1.Shard) {
			s.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{Storage: &operatorv1alpha1.EtcdStorage{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, "Running", "ShardsDiffer", "set its field etcd back", false},
		"an etcd of the user": {func(s *operatorv1alpha1.Shard) {
			s.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Endpoints: []string{"https://etcd:2379"}}
		}, "Running", "ShardsDiffer", "set its field etcd back", false},
		"its deletion": {func(s *operatorv1alpha1.Shard) {
			s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: time.Now()}, []string{operatorv1alpha1.FinalizerShard}
		}, "Running", "Running", "Shard alpha is being stopped", false},
		"its forced deletion": {func(s *operatorv1alpha1.Shard) {
			s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: time.Now()}, []string{operatorv1alpha1.FinalizerShard}
			s.Annotations[operatorv1alpha1.AnnotationForceDelete] = "true"
		}, "Running", "ReferenceNotFound", "is being deleted", false},
	} {
		t.Run(name, func(t *testing.T) {
			restore, live, started, claim := newShardRestore(true), newShard(), metav1.Now(), newClaim("")
			restore.Status.Phase, restore.Status.StartedAt, restore.Status.Shards = operatorv1alpha1.RestorePhaseRunning, &started, []string{"alpha"}
			restore.Status.Shard = newShardStatus(shard{desired.NewShard(live, root), etcd.ShardUsage(live), live})
			if restore.Status.Shard.ReplacedEtcdClusterID != "c1" {
				t.Errorf("got %+v", restore.Status.Shard)
			}
			stopped := dependencies.ShardStopped(restore)
			if tc.reason != "Running" { // nothing else protects the claim
				meta.SetStatusCondition(&live.Status.Conditions, metav1.Condition{Type: stopped.Type, Status: metav1.ConditionFalse, Reason: stopped.Reason, Message: stopped.Message})
			}
			tc.change(live)
			objects := []client.Object{newRunningRoot(), live, restore, claim}
			if !tc.gone {
				objects = append(objects, readyStore())
			}
			c := memory.NewClient(t, objects...)
			restore, condition := reconcileOnce(t, c, &releaser{}, operatorv1alpha1.ConditionCompleted)
			if restore.Status.Phase != tc.phase || condition.Reason != tc.reason || !strings.Contains(condition.Message, tc.text) {
				t.Errorf("phase %s, condition %+v", restore.Status.Phase, condition)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
				t.Error(err)
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
		unavailable  bool // the Shard
	}{
		"volumes that are empty":          {false, releaser{facts: empty}, false, nil, "", "", false},
		"volumes that do not exist":       {false, releaser{facts: serving}, true, nil, "", "", false},
		"a shard that serves":             {false, releaser{facts: serving, revision: 150}, false, nil, "InstallationHasData", "the etcd of shard alpha serves, and has 50 writes of the time since the backup of 2030-01-02T03:04:05Z (1h0m0s ago). If that is to be lost, create another Restore with shard.discardData: true", false},
		"one that was restored since":     {false, releaser{facts: serving, revision: 1_000_000_150}, false, nil, "InstallationHasData", "has what was written since", false},
		"one that does not answer":        {false, releaser{facts: down}, false, nil, "InstallationHasData", "may have all that was written since the backup of 2030-01-02T03:04:05Z", false},
		"what the user discards":          {true, releaser{facts: serving, revision: 150}, false, nil, "", "", false},
		"moves that can end":              {true, releaser{facts: serving, migrations: []string{"m"}}, false, nil, "Migrating", "have not ended: m", false},
		"moves without a server":          {true, releaser{facts: serving, migrations: []string{"m"}}, false, nil, "", "", true},
		"moves that cannot":               {true, releaser{facts: down, migrations: []string{"m"}}, false, nil, "", "", false},
		"another namespace":               {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Installation.Namespace = "old" }), "OtherOwner", "from a backup of its own installation", false},
		"another cluster":                 {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Installation.KubernetesCluster = "other" }), "OtherOwner", "from a backup of its own installation", false},
		"an earlier installation":         {true, releaser{}, false, with(func(m *manifest.Manifest) { m.CutStoppedAt = taken.Add(-48 * time.Hour) }), "OtherOwner", "an earlier installation of the same name", false},
		"a backup without the shard":      {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Shards = m.Shards[:1] }), "ShardsDiffer", "has no shard alpha", false},
		"a backup with more shards":       {true, releaser{facts: empty}, false, with(func(m *manifest.Manifest) { m.Shards = append(m.Shards, manifest.Shard{Name: "gone"}) }), "", "", false},
		"another prefix":                  {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Shards[1].Prefix = "/other" }), "ShardsDiffer", "set its etcd.prefix to /other", false},
		"another version":                 {true, releaser{}, false, with(func(m *manifest.Manifest) { m.Installation.Version = "atoll:v0" }), "OtherVersion", "restore a backup of this version", false},
		"a root shard with other volumes": {true, releaser{facts: empty}, false, with(func(m *manifest.Manifest) { m.Shards[0].Prefix = "/other" }), "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			root, restore, report := newRunningRoot(), newShardRestore(tc.discard), &status.Report{}
			root.CreationTimestamp = metav1.NewTime(taken.Add(-24 * time.Hour))
			shard := newShard()
			if !tc.unavailable {
				shard.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionAvailable, Status: metav1.ConditionTrue}}
			}
			objects := []client.Object{root, shard, &corev1.Secret{ObjectMeta: named("alpha-etcd-client")}}
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
	set := &appsv1.StatefulSet{ObjectMeta: ofShard("alpha-etcd")}
	pod := &corev1.Pod{ObjectMeta: named("alpha-shard-kcp-1")}
	pod.Labels, pod.Spec.NodeName = desired.NewShard(shard, newRunningRoot()).Labels(), "node-1"
	old := newClaim("earlier-33333333")
	old.Finalizers, old.UID = []string{"kubernetes.io/pvc-protection"}, "old"
	// Of an earlier Restore that has failed for another member.
	job := &batchv1.Job{ObjectMeta: named("earlier-33333333-aaaa")}
	job.Labels, job.Spec.Template.Labels = desired.AppLabels(desired.ComponentBackup, "earlier"), map[string]string{labelRestores: "alpha"}
	jobPod := &corev1.Pod{ObjectMeta: named("earlier-33333333-aaaa-1")}
	jobPod.Labels, jobPod.Status.Phase = map[string]string{labelRestores: "alpha", batchv1.JobNameLabel: job.Name}, corev1.PodPending
	ended := &corev1.Pod{ObjectMeta: named("earlier-33333333-bbbb-1")}
	ended.Labels, ended.Status.Phase = map[string]string{labelRestores: "alpha"}, corev1.PodFailed
	c := memory.NewClient(t, restore, shard, set, pod, old, job, jobPod, ended, newRunningRoot(), readyStore())
	claim, jobs := &corev1.PersistentVolumeClaim{}, &batchv1.JobList{}
	next := func(text string, mayDelete bool) {
		t.Helper()
		_, completed := reconcileOnce(t, c, &releaser{}, operatorv1alpha1.ConditionCompleted)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(old), claim); err != nil {
			t.Fatal(err)
		}
		err := c.List(t.Context(), jobs)
		jobs.Items = slices.DeleteFunc(jobs.Items, func(j batchv1.Job) bool { return j.Name == job.Name })
		if err != nil || len(jobs.Items) > 0 != (text == "") {
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
	for _, step := range []struct {
		text   string
		object client.Object // whose end lets the Restore go on
	}{
		{"pod alpha-shard-kcp-1 on node \"node-1\" has not ended. If the node of a pod does not return, delete the Node", pod},
		{"StatefulSet alpha-etcd exists", set},
		{"Job earlier-33333333-aaaa of another Restore has not ended", job},
		{"pod earlier-33333333-aaaa-1 of another Restore has not ended", jobPod},
	} {
		next(step.text, false)
		if err := c.Delete(t.Context(), step.object); err != nil {
			t.Fatal(err)
		}
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
	next("Unavailable", "later", 1)
	restore.Status.Shard.ComparedAt.Time = restore.Status.Shard.ComparedAt.Add(-compareRetryInterval)
	if err := c.Status().Update(t.Context(), restore); err != nil {
		t.Fatal(err)
	}
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

// TestLaterRelease: the mark of a shard that a later Restore restores, or has restored, is not that of the earlier one.
func TestLaterRelease(t *testing.T) {
	begun := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	later, before := metav1.NewTime(begun.Add(time.Minute)), metav1.NewTime(begun.Add(-time.Minute))
	const mark, kept = "https://alpha-etcd-0.alpha-etcd.kcp.svc.cluster.local:2379/registry/~restored", "shard alpha, which Restore other has restored since, is released with that one"
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.Restore)
		keeps  bool
	}{
		"one that is completed":     {func(*operatorv1alpha1.Restore) {}, true},
		"one that runs":             {func(r *operatorv1alpha1.Restore) { r.Status.Phase = operatorv1alpha1.RestorePhaseRunning }, true},
		"one that is released":      {func(r *operatorv1alpha1.Restore) { r.Spec.Release = true }, false},
		"one that has failed":       {func(r *operatorv1alpha1.Restore) { r.Status.Phase = operatorv1alpha1.RestorePhaseFailed }, false},
		"one that was begun before": {func(r *operatorv1alpha1.Restore) { r.Status.StartedAt = &before }, false},
		"one that has not begun":    {func(r *operatorv1alpha1.Restore) { r.Status.StartedAt = nil }, false},
		"one of another shard":      {func(r *operatorv1alpha1.Restore) { r.Status.Shards = []string{"beta"} }, false},
		"that of another RootShard": {func(r *operatorv1alpha1.Restore) { r.Spec.RootShardRef.Name = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			restore := newShardRestore(true)
			restore.Spec.Release = true
			restore.Status.Phase, restore.Status.StartedAt, restore.Status.StoppedAt, restore.Status.Shards = operatorv1alpha1.RestorePhaseCompleted, &begun, &begun, []string{"alpha"}
			other := restore.DeepCopy()
			other.Name, other.UID, other.Spec.Release, other.Status.StartedAt = "other", "other", false, &later
			tc.change(other)
			r := &releaser{}
			c := memory.NewClient(t, restore, other, newShard(), newRunningRoot(), &corev1.Secret{ObjectMeta: named("alpha-etcd-client")})
			_, released := reconcileOnce(t, c, r, operatorv1alpha1.ConditionReleased)
			if released.Status != metav1.ConditionTrue || slices.Contains(r.removed, mark) == tc.keeps || strings.Contains(released.Message, kept) != tc.keeps {
				t.Errorf("got %+v, removed %v", released, r.removed)
			}
		})
	}
}

// TestUncached: a StatefulSet that the cache does not have yet keeps the Restore from the volumes.
func TestUncached(t *testing.T) {
	live := newShard()
	s := &scope{
		config: reconcile.Config{Cluster: apply.Cluster{Client: memory.NewClient(t)}, Live: memory.NewClient(t, &appsv1.StatefulSet{ObjectMeta: ofShard("alpha-etcd")})},
		report: &status.Report{}, restore: newShardRestore(true),
	}
	err := s.awaitStop(t.Context(), shard{desired.NewShard(live, newRunningRoot()), etcd.ShardUsage(live), live})
	if result := s.report.Get(operatorv1alpha1.ConditionCompleted); err == nil || !strings.Contains(result.Message, "StatefulSet alpha-etcd exists") {
		t.Errorf("%v: %+v", err, result)
	}
}
