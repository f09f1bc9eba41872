package restore

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/backup/archive"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/shardcompare"
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "kcp"} }

func newRestore() *operatorv1alpha1.Restore {
	out := &operatorv1alpha1.Restore{ObjectMeta: named("back")}
	out.UID = "11111111-2222"
	out.Spec = operatorv1alpha1.RestoreSpec{RootShardRef: corev1.LocalObjectReference{Name: "root"}, StoreRef: corev1.LocalObjectReference{Name: "store"}, BackupID: "id"}
	return out
}

func newRoot() *operatorv1alpha1.RootShard {
	out := &operatorv1alpha1.RootShard{ObjectMeta: named("root")}
	out.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: "back"}
	return out
}

// releaser records the marks that are removed. It is the etcds and the servers of an installation, with answers that the test sets.
type releaser struct {
	err     error
	removed []string

	facts      etcd.Facts
	revision   int64
	migrations []string
	found      shardcompare.Result
	compared   int
}

func (r *releaser) Observe(_ context.Context, _ []etcd.Endpoint, _ *tls.Config, facts *etcd.Facts) {
	*facts = r.facts
}

func (r *releaser) Revision(context.Context, []string, *tls.Config) (int64, error) {
	return r.revision, r.err
}

func (r *releaser) Migrations(context.Context, *operatorv1alpha1.RootShard, *operatorv1alpha1.Shard) ([]string, error) {
	return r.migrations, r.err
}

func (r *releaser) CompareShards(context.Context, *operatorv1alpha1.RootShard, []desired.Shard, string, time.Time) (shardcompare.Result, error) {
	r.compared++
	return r.found, r.err
}

func (r *releaser) Credentials(map[string][]byte) (*tls.Config, error) { return &tls.Config{}, nil }

func (r *releaser) DeleteKey(_ context.Context, endpoints []string, _ *tls.Config, key string) error {
	r.removed = append(r.removed, endpoints[0]+key)
	return r.err
}

// reconcileOnce reconciles the Restore, and returns it with one of its conditions.
func reconcileOnce(t *testing.T, c client.Client, r *releaser, condition string) (*operatorv1alpha1.Restore, metav1.Condition) {
	t.Helper()
	reconciler := NewReconciler(reconcile.Config{
		Cluster: apply.Cluster{Client: c}, Recorder: events.NewFakeRecorder(100), Now: time.Now, Image: desired.Image{Repository: "atoll", Tag: "v1"}, ClusterID: "cluster",
	}, r, r)
	key := client.ObjectKeyFromObject(newRestore())
	if _, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	out := &operatorv1alpha1.Restore{}
	if err := c.Get(t.Context(), key, out); err != nil {
		t.Fatal(err)
	}
	if found := meta.FindStatusCondition(out.Status.Conditions, condition); found != nil {
		return out, *found
	}
	return out, metav1.Condition{}
}

// TestInstallation has what is found before anything is read of the store.
func TestInstallation(t *testing.T) {
	shard := &operatorv1alpha1.Shard{ObjectMeta: named("alpha")}
	shard.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	external := shard.DeepCopy()
	external.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Endpoints: []string{"https://etcd:2379"}}
	inMemory := newRoot()
	inMemory.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{Storage: &operatorv1alpha1.EtcdStorage{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	other := newRoot()
	other.Annotations[operatorv1alpha1.AnnotationRestore] = "another"
	ready := &operatorv1alpha1.BackupStore{ObjectMeta: named("store")}
	ready.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	for name, tc := range map[string]struct {
		objects []client.Object
		phase   operatorv1alpha1.RestorePhase
		reason  string
		text    string
	}{
		"isolated elsewhere":           {[]client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}}, newRoot(), ready}, "Failed", "NotOfDrill", "not that of a RestoreDrill"},
		"no RootShard":                 {[]client.Object{ready}, "Pending", "ReferenceNotFound", "with the annotation operator.kcp.io/restore: back"},
		"no BackupStore":               {[]client.Object{newRoot()}, "Pending", "ReferenceNotFound", "BackupStore store does not exist"},
		"one that is not ready":        {[]client.Object{newRoot(), &operatorv1alpha1.BackupStore{ObjectMeta: named("store")}}, "Pending", "StoreNotReady", "is not ready"},
		"a RootShard that may start":   {[]client.Object{other, ready}, "Pending", "NotAnnotated", "RootShard root does not wait"},
		"a RootShard that has started": {[]client.Object{newRoot(), ready, &appsv1.StatefulSet{ObjectMeta: named("root-etcd")}}, "Failed", "InstallationHasData", "a Restore replaces no data"},
		"a Shard that has started":     {[]client.Object{newRoot(), ready, shard, &appsv1.StatefulSet{ObjectMeta: named("alpha-etcd")}}, "Failed", "InstallationHasData", "shard alpha has started"},
		"a volume of somebody else":    {[]client.Object{newRoot(), ready, &corev1.PersistentVolumeClaim{ObjectMeta: named("data-root-etcd-0")}}, "Failed", "InstallationHasData", "data-root-etcd-0 exists"},
		"an etcd of the user":          {[]client.Object{newRoot(), ready, external}, "Failed", "NotSupported", "shard alpha has an etcd of its own"},
		"an etcd without volumes":      {[]client.Object{inMemory, ready}, "Failed", "NotSupported", "emptyDir"},
		"no identity":                  {[]client.Object{newRoot(), ready}, "Pending", "SecretNotFound", "create it"},
	} {
		t.Run(name, func(t *testing.T) {
			restore := newRestore()
			restore.Spec.Isolated = tc.reason == "NotOfDrill"
			c := memory.NewClient(t, append([]client.Object{restore}, tc.objects...)...)
			restore, condition := reconcileOnce(t, c, nil, operatorv1alpha1.ConditionCompleted)
			if restore.Status.Phase != tc.phase || condition.Reason != tc.reason || !strings.Contains(condition.Message, tc.text) {
				t.Errorf("phase %s, condition %+v", restore.Status.Phase, condition)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	restore := newRestore()
	restore.Status.Phase, restore.Status.Shards = operatorv1alpha1.RestorePhaseCompleted, []string{"root", "alpha"}
	restore.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionCompleted, Status: metav1.ConditionTrue, Reason: reasonRestored, Message: "restored"}}
	shard := &operatorv1alpha1.Shard{ObjectMeta: named("alpha")}
	shard.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	shard.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{}, Prefix: "/alpha"}
	later := shard.DeepCopy()
	later.Name, later.Spec.Etcd.Prefix = "later", "/later"
	c := memory.NewClient(t, restore, newRoot(), shard, later, &corev1.Secret{ObjectMeta: named("later-etcd-client")}, &corev1.Secret{ObjectMeta: named("root-etcd-client")}, &corev1.Secret{ObjectMeta: named("alpha-etcd-client")},
		&appsv1.StatefulSet{ObjectMeta: named("root-etcd")})
	r := &releaser{err: errors.New("no connection")}

	if _, released := reconcileOnce(t, c, r, operatorv1alpha1.ConditionReleased); released.Reason != "AwaitsRelease" || len(r.removed) > 0 {
		t.Errorf("without a release: %+v, %v", released, r.removed)
	}
	restore, _ = reconcileOnce(t, c, r, operatorv1alpha1.ConditionReleased)
	if !meta.IsStatusConditionTrue(restore.Status.Conditions, operatorv1alpha1.ConditionReady) {
		t.Errorf("a Restore that is not released is not ready: %+v", restore.Status.Conditions)
	}
	restore.Spec.Release = true
	if err := c.Update(t.Context(), restore); err != nil {
		t.Fatal(err)
	}
	if _, released := reconcileOnce(t, c, r, operatorv1alpha1.ConditionReleased); released.Status != metav1.ConditionFalse || !strings.Contains(released.Message, "shard alpha: no connection") {
		t.Errorf("without a connection: %+v", released)
	}
	r.err, r.removed = nil, nil
	restore, released := reconcileOnce(t, c, r, operatorv1alpha1.ConditionReleased)
	want := []string{"https://root-etcd-0.root-etcd.kcp.svc.cluster.local:2379/registry/~restored", "https://alpha-etcd-0.alpha-etcd.kcp.svc.cluster.local:2379/alpha/~restored"}
	if released.Status != metav1.ConditionTrue || restore.Status.Phase != operatorv1alpha1.RestorePhaseCompleted || !slices.Equal(r.removed, want) {
		t.Errorf("%+v: removed %v", released, r.removed)
	}
	r.removed = nil
	if _, released := reconcileOnce(t, c, r, operatorv1alpha1.ConditionReleased); released.Status != metav1.ConditionTrue || len(r.removed) > 0 {
		t.Errorf("a second time: %+v, %v", released, r.removed)
	}

	stopped, again := metav1.NewTime(time.Unix(1000, 0)), newRoot()
	again.CreationTimestamp = metav1.NewTime(stopped.Add(time.Hour))
	restore.ResourceVersion, restore.Status.StoppedAt = "", &stopped
	meta.SetStatusCondition(&restore.Status.Conditions, metav1.Condition{Type: operatorv1alpha1.ConditionReleased, Status: metav1.ConditionFalse, Reason: "AwaitsRelease"})
	c = memory.NewClient(t, restore, again, shard, &corev1.Secret{ObjectMeta: named("root-etcd-client")}, &corev1.Secret{ObjectMeta: named("alpha-etcd-client")})
	if _, released := reconcileOnce(t, c, r, operatorv1alpha1.ConditionReleased); released.Status != metav1.ConditionFalse || len(r.removed) > 0 {
		t.Errorf("of an installation that was created later: %+v, %v", released, r.removed)
	}
}

// TestImageChangesWhileRunning: Jobs stay as they are, because their templates cannot be changed.
func TestImageChangesWhileRunning(t *testing.T) {
	restore, started := newRestore(), metav1.Now()
	restore.Status.Phase, restore.Status.StartedAt, restore.Status.Shards = operatorv1alpha1.RestorePhaseRunning, &started, []string{"root"}
	store := &operatorv1alpha1.BackupStore{ObjectMeta: named("store")}
	store.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	root := newRoot()
	c := memory.NewClient(t, restore, root, store)
	images := func() (out []string) {
		t.Helper()
		if restore, completed := reconcileOnce(t, c, nil, operatorv1alpha1.ConditionCompleted); restore.Status.Phase != operatorv1alpha1.RestorePhaseRunning {
			t.Fatalf("%s: %+v", restore.Status.Phase, completed)
		}
		jobs := &batchv1.JobList{}
		if err := c.List(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		for i := range jobs.Items {
			out = append(out, jobs.Items[i].Spec.Template.Spec.Containers[0].Image)
		}
		return out
	}
	before := images()
	root.Spec.Image = &operatorv1alpha1.ImageSpec{Tag: "v2"}
	if err := c.Update(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if after := images(); len(before) != 1 || !slices.Equal(after, before) {
		t.Errorf("Jobs have %q, before %q", after, before)
	}
}

// TestMounted: a copy gets only what its shards mount, and never an authority of the installation.
func TestMounted(t *testing.T) {
	root := newRoot()
	var saved []archive.Secret
	for _, name := range []string{"root-ca", "root-client-ca-2", "root-service-account", "root-service-account-2", "other-service-account", "provided-ca", "keys", "unmounted"} {
		secret := archive.Secret{Metadata: archive.SecretMetadata{Name: name}, Data: map[string][]byte{"config": []byte("v")}}
		if name == "provided-ca" {
			secret.Data["tls.key"] = []byte("v")
		}
		saved = append(saved, secret)
		if name != "unmounted" {
			root.Spec.ExtraVolumes = append(root.Spec.ExtraVolumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}})
		}
	}
	root.Spec.ExtraVolumes = append(root.Spec.ExtraVolumes, corev1.Volume{Name: "other"})
	installation, err := observeInstallation(t.Context(), apply.Cluster{Client: memory.NewClient(t, root)}, root, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := mountedOnly(saved, installation); len(got) != 1 || got[0].Metadata.Name != "keys" {
		t.Errorf("got %+v", got)
	}
}

// TestSecret makes Secrets of bundles that somebody else may have made.
func TestSecret(t *testing.T) {
	saved := archive.Secret{Type: "Opaque", Metadata: archive.SecretMetadata{
		Name: "a", Labels: map[string]string{"l": "v", "controller.cert-manager.io/fao": "true"}, Annotations: map[string]string{"cert-manager.io/issuer-name": "i", "kubernetes.io/service-account.name": "admin"},
	}, Data: map[string][]byte{"k": []byte("v")}}
	secret, err := newSecret("kcp", saved)
	if err != nil || secret.Namespace != "kcp" || len(secret.Annotations) != 1 || secret.Annotations["cert-manager.io/issuer-name"] != "i" || len(secret.Labels) != 1 || secret.Labels["controller.cert-manager.io/fao"] != "true" || string(secret.Data["k"]) != "v" {
		t.Errorf("got %+v, %v", secret, err)
	}
	for _, kind := range []corev1.SecretType{corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken} {
		saved.Type = string(kind)
		if _, err := newSecret("kcp", saved); err == nil {
			t.Errorf("a Secret of type %s is created", kind)
		}
	}
}

func TestTag(t *testing.T) {
	for image, want := range map[string]string{"atoll:v1": ":v1", "localhost:5000/atoll:v1": ":v1", "localhost:5000/atoll": "", "a/b/atoll@sha256:1": "@sha256:1"} {
		if got := tagOf(image); got != want {
			t.Errorf("%s has %q, want %q", image, got, want)
		}
	}
}

// TestCompare compares manifests with an installation of one shard.
func TestCompare(t *testing.T) {
	old := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "old"}}
	for name, tc := range map[string]struct {
		prefix, namespace, cluster string
		takeOver, isolated         bool
		reason, text               string
	}{
		"its own":                           {"/registry", "kcp", "cluster", false, false, "", ""},
		"a prefix that is written in short": {"registry/", "kcp", "cluster", false, false, "", ""},
		"another prefix":                    {"/other", "kcp", "cluster", false, false, "ShardsDiffer", "set its etcd.prefix to /other"},
		"another namespace":                 {"/registry", "old", "cluster", false, false, "OtherOwner", "with takeOver: true"},
		"one that exists":                   {"/registry", "old", "cluster", true, false, "OtherOwner", "RootShard old/root, which still exists"},
		"one that is gone":                  {"/registry", "gone", "cluster", true, false, "", ""},
		"one of another cluster":            {"/registry", "old", "another", true, false, "", ""},
		"a copy beside its installation":    {"/registry", "old", "cluster", false, true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root, report, restore := newRoot(), &status.Report{}, newRestore()
			restore.Spec.TakeOver, restore.Spec.Isolated, restore.Spec.Source = tc.takeOver, tc.isolated, &operatorv1alpha1.RestoreSource{Namespace: tc.namespace}
			c := apply.Cluster{Client: memory.NewClient(t, root, old)}
			installation, err := observeInstallation(t.Context(), c, root, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := &scope{config: reconcile.Config{Cluster: c, ClusterID: "cluster"}, report: report, restore: restore, root: root, installation: installation}
			err = s.compare(t.Context(), &manifest.Manifest{
				Installation: manifest.Installation{KubernetesCluster: tc.cluster, Namespace: tc.namespace, RootShard: "root"}, Shards: []manifest.Shard{{Name: "root", Prefix: tc.prefix}},
			})
			result := report.Get(operatorv1alpha1.ConditionCompleted)
			if (err != nil) != (tc.reason != "") || result.Reason != tc.reason || !strings.Contains(result.Message, tc.text) {
				t.Errorf("%v: %+v", err, result)
			}
		})
	}
}

// TestJobName names the Jobs of a claim that is deleted and created again.
func TestJobName(t *testing.T) {
	claim := func(uid types.UID) etcd.Volume {
		return etcd.Volume{Member: "root-etcd-0", Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: uid}}}
	}
	if first, second := jobName(newRestore(), claim("a")), jobName(newRestore(), claim("b")); first == second || first != jobName(newRestore(), claim("a")) {
		t.Errorf("the Jobs are %s and %s", first, second)
	}
}

// TestTransient reads a store whose Secret the API server does not return at the moment: the Restore goes on.
func TestTransient(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	restore, store := newRestore(), &operatorv1alpha1.BackupStore{ObjectMeta: named("store")}
	restore.Spec.Identity = operatorv1alpha1.SecretKeyReference{Name: "age", Key: "key"}
	store.Spec.S3Credentials = operatorv1alpha1.S3Credentials{AccessKeyID: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"}, SecretAccessKey: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "key"}}
	c := memory.NewClient(t, restore, newRoot(), &corev1.Secret{ObjectMeta: named("age"), Data: map[string][]byte{"key": []byte(identity.String())}})
	report, unavailable := &status.Report{}, apierrors.NewServiceUnavailable("later")
	failing := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if key.Name == "s3" {
			return unavailable
		}
		return c.Get(ctx, key, object, options...)
	}})
	s := &scope{config: reconcile.Config{Cluster: apply.Cluster{Client: failing}}, report: report, restore: restore, root: newRoot(), store: store}
	if err := s.readBackup(t.Context()); !errors.Is(err, unavailable) || len(report.Results) > 0 {
		t.Errorf("got %v, %+v", err, report.Results)
	}
}
