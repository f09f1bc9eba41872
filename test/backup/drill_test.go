package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
)

// drillNamespace is the name in config/restore-drill/role.yaml, drilledNamespace that of the installation.
const drillNamespace, drilledNamespace = "restore-drill", "drilled"

// testDrills drills restores by the operator that runs, up to the start of the restored installation: no kubelet is part of the test, which
// also deletes what is in a namespace that is being deleted.
func testDrills(t *testing.T, operator *rest.Config, c client.Client, s *s3) {
	testRightsOfDrills(t, operator)
	i := newInstallation(t, s, etcdtest.Start(t))
	i.fill(t, 1)
	for _, prefix := range []string{"/registry", "/cache"} {
		if _, err := i.etcdClient.Put(t.Context(), prefix+"/~owner", "rootshard/"+drilledNamespace+"/root@c1"); err != nil {
			t.Fatal(err)
		}
	}
	i.config.Store.Prefix = drilledNamespace + "/" + rootShard
	i.config.Installation.Namespace, i.config.Installation.Version = drilledNamespace, "registry.example.com/atoll:saved"
	i.config.Secrets[0].Type = string(corev1.SecretTypeOpaque)
	result, err := i.create(t)
	if err != nil {
		t.Fatal(result.Error)
	}
	createDrilled(t, c, i, result.BackupID, result.ManifestDigest)
	testForeignNamespace(t, c)

	// One whose key opens nothing: it fails, its namespace is removed, and the history has it.
	wrong := newDrill("wrong", "other")
	create(t, c, wrong)
	awaitDrill(t, c, wrong, func(status *operatorv1alpha1.RestoreDrillStatus) bool {
		return status.Active != nil && status.Active.Result == operatorv1alpha1.RestoreDrillFailed
	})
	if condition := meta.FindStatusCondition(wrong.Status.Conditions, operatorv1alpha1.ConditionCurrent); condition == nil || condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, "the Restore has failed: the backup cannot be restored") {
		t.Errorf("got %+v", condition)
	}
	// While its namespace is there, another one waits.
	good := newDrill("good", "key.txt")
	create(t, c, good)
	t.Cleanup(func() {
		if t.Failed() {
			current := &operatorv1alpha1.RestoreDrill{}
			err := c.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(good), current)
			t.Logf("the RestoreDrill (%v): %+v", err, current.Status)
		}
	})
	awaitDrill(t, c, good, func(status *operatorv1alpha1.RestoreDrillStatus) bool {
		condition := meta.FindStatusCondition(status.Conditions, operatorv1alpha1.ConditionScheduled)
		return status.Active == nil && condition != nil && condition.Reason == "Waiting" && strings.Contains(condition.Message, "RestoreDrill drilled/wrong uses namespace restore-drill")
	})
	finishDeletion(t, c)
	awaitDrill(t, c, wrong, func(status *operatorv1alpha1.RestoreDrillStatus) bool {
		return status.Active == nil && len(status.History) == 1 && status.History[0].Result == operatorv1alpha1.RestoreDrillFailed && status.LastSuccessfulTime == nil
	})

	r := &restores{client: c, saved: i, id: result.BackupID, digest: result.ManifestDigest, directory: t.TempDir()}
	job := r.awaitJobIn(t, drillNamespace, "drill-")
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: drillNamespace}})
	r.report(t, job, r.runJob(t, job))
	in := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: drillNamespace, Name: name} }
	shardtesting.Eventually(t, "the copy to start", func(ctx context.Context) error {
		return c.Get(ctx, in("root-ca"), &certmanagerv1.Certificate{})
	})
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), in("root-ca"), secret); !apierrors.IsNotFound(err) {
		t.Errorf("the copy has the certificate authority of the installation: %v", err)
	}
	policies := &networkingv1.NetworkPolicyList{}
	if err := c.List(t.Context(), policies, client.InNamespace(drillNamespace)); err != nil || len(policies.Items) != 2 {
		t.Errorf("%v: there are %d NetworkPolicies", err, len(policies.Items))
	}
	root := &operatorv1alpha1.RootShard{}
	if err := c.Get(t.Context(), in(rootShard), root); err != nil || root.Spec.Image.Tag != "saved" || root.Spec.External.Hostname != "restore-drill.invalid" || root.Spec.Audit != nil {
		t.Errorf("%v: the copy is %+v", err, root.Spec)
	}
	awaitDrill(t, c, good, func(status *operatorv1alpha1.RestoreDrillStatus) bool {
		run := status.Active
		return run != nil && run.SavedLogicalClusters == 2 && run.DataLoss != "" && strings.Contains(run.Message, "RootShard root is not ready")
	})
	r.checkOwner(t, "rootshard/"+drillNamespace+"/root")

	// Who deletes a RestoreDrill deletes the namespace of the drill that runs.
	if err := c.Delete(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	finishDeletion(t, c)
	shardtesting.Eventually(t, "the RestoreDrill to go", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(good), good); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v: it is there: %+v", err, good.Status)
		}
		return nil
	})
}

// testRightsOfDrills: the operator creates and deletes one namespace only.
func testRightsOfDrills(t *testing.T, operator *rest.Config) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(operator)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := clients.CoreV1().Namespaces()
	options := metav1.ApplyOptions{FieldManager: "test"}
	_, err = namespaces.Apply(t.Context(), corev1ac.Namespace("other"), options)
	_, createErr := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	deleteErr := namespaces.Delete(t.Context(), namespace, metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.IsForbidden(createErr) || !apierrors.IsForbidden(deleteErr) {
		t.Errorf("applying, creating and deleting other namespaces: %v, %v, %v", err, createErr, deleteErr)
	}
}

// testForeignNamespace: an operator that was killed after it had applied its label to a namespace that somebody else has created does not delete it.
func testForeignNamespace(t *testing.T, c client.Client) {
	t.Helper()
	drill, object := newDrill("suspended", "key.txt"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: drillNamespace}}
	drill.Spec.Suspend = true
	create(t, c, drill, object)
	label := corev1ac.Namespace(drillNamespace).WithLabels(map[string]string{operatorv1alpha1.LabelRestoreDrill: string(drill.UID)})
	if err := c.Apply(t.Context(), label, client.FieldOwner("atoll-operator-"+string(drill.UID))); err != nil {
		t.Fatal(err)
	}
	before := drill.DeepCopy()
	drill.Spec.Schedule = "@monthly" // it is reconciled
	if err := c.Patch(t.Context(), drill, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the namespace to be released", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if _, found := object.Labels[operatorv1alpha1.LabelRestoreDrill]; found {
			return fmt.Errorf("it is %+v", object)
		}
		return nil
	})
	if object.DeletionTimestamp != nil {
		t.Errorf("it is being deleted: %+v", object)
	}
	for _, object := range []client.Object{drill, object} {
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	finishDeletion(t, c)
}

// createDrilled creates an installation with a Backup.
func createDrilled(t *testing.T, c client.Client, i *installation, id, digest string) {
	t.Helper()
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity, err := os.ReadFile(i.identity)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: drilledNamespace}
	}
	key := func(name string) operatorv1alpha1.SecretKeyReference {
		return operatorv1alpha1.SecretKeyReference{Name: "s3", Key: name}
	}
	root := &operatorv1alpha1.RootShard{ObjectMeta: named(rootShard)}
	root.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: "never"} // it is not started here
	root.Spec.External = operatorv1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}
	root.Spec.Audit = &operatorv1alpha1.AuditSpec{}
	backup := &operatorv1alpha1.Backup{ObjectMeta: named("last"), Spec: newDrill("", "").Spec.BackupSpec}
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: drilledNamespace}},
		&corev1.Secret{ObjectMeta: named("s3"), StringData: map[string]string{"id": programs.S3AccessKey, "key": programs.S3SecretKey}},
		&corev1.Secret{ObjectMeta: named("age"), StringData: map[string]string{"key.txt": string(identity), "other": other.String()}},
		&operatorv1alpha1.BackupStore{ObjectMeta: named("store"), Spec: operatorv1alpha1.BackupStoreSpec{
			EndpointURL: "http://" + i.s3.address, Bucket: bucket, S3Credentials: operatorv1alpha1.S3Credentials{AccessKeyID: key("id"), SecretAccessKey: key("key")},
			Encryption: operatorv1alpha1.BackupEncryption{Recipients: i.config.Store.Recipients},
		}}, root, backup)
	shardtesting.Eventually(t, "the Backup to be completed", func(ctx context.Context) error { // the operator writes it, too
		if err := c.Get(ctx, client.ObjectKeyFromObject(backup), backup); err != nil {
			return err
		}
		backup.Status.Phase, backup.Status.BackupID, backup.Status.ManifestDigest, backup.Status.StoppedAt = operatorv1alpha1.BackupPhaseCompleted, id, digest, ptr.To(metav1.Now())
		return c.Status().Update(ctx, backup)
	})
}

func newDrill(name, key string) *operatorv1alpha1.RestoreDrill {
	return &operatorv1alpha1.RestoreDrill{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: drilledNamespace}, Spec: operatorv1alpha1.RestoreDrillSpec{
		BackupSpec: operatorv1alpha1.BackupSpec{RootShardRef: corev1.LocalObjectReference{Name: rootShard}, StoreRef: corev1.LocalObjectReference{Name: "store"}},
		Identity:   operatorv1alpha1.SecretKeyReference{Name: "age", Key: key}, Schedule: "@yearly", Immediate: true,
	}}
}

func awaitDrill(t *testing.T, c client.Client, drill *operatorv1alpha1.RestoreDrill, is func(*operatorv1alpha1.RestoreDrillStatus) bool) {
	t.Helper()
	shardtesting.Eventually(t, "RestoreDrill "+drill.Name, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(drill), drill); err != nil {
			return err
		}
		if !is(&drill.Status) {
			return fmt.Errorf("its status is %+v, its drill %+v", drill.Status, drill.Status.Active)
		}
		return nil
	})
}

// finishDeletion waits until the operator has deleted the namespace of drills, and does what the controller of namespaces does.
func finishDeletion(t *testing.T, c client.Client) {
	t.Helper()
	object := &corev1.Namespace{}
	shardtesting.Eventually(t, "the namespace to be deleted", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: drillNamespace}, object); err != nil {
			return err
		}
		if object.DeletionTimestamp == nil {
			return errors.New("it is not")
		}
		return nil
	})
	for _, kind := range []client.Object{
		&operatorv1alpha1.Restore{}, &operatorv1alpha1.RootShard{}, &operatorv1alpha1.BackupStore{}, &networkingv1.NetworkPolicy{}, &corev1.Secret{}, &corev1.Pod{}, &corev1.ConfigMap{}, &corev1.ServiceAccount{},
	} {
		// As the namespace controller, it waits for objects with finalizers: in the next namespace of the name, they would be those of an earlier drill.
		shardtesting.EventuallyWithin(t, 2*time.Minute, fmt.Sprintf("%T to go", kind), func(ctx context.Context) error {
			return deleteAll(ctx, c, kind)
		})
	}
	shardtesting.Eventually(t, "the namespace to go", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: drillNamespace}, object); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		if object.DeletionTimestamp == nil {
			return nil // that of the next drill
		}
		object.Spec.Finalizers = nil
		return errors.Join(errors.New("it is there"), client.IgnoreNotFound(c.SubResource("finalize").Update(ctx, object)))
	})
}

// deleteAll deletes the objects of a kind in the namespace of drills, and returns an error while there are any.
func deleteAll(ctx context.Context, c client.Client, kind client.Object) error {
	if err := c.DeleteAllOf(ctx, kind, client.InNamespace(drillNamespace)); err != nil {
		return err
	}
	gvk, err := c.GroupVersionKindFor(kind)
	if err != nil {
		return err
	}
	left := &metav1.PartialObjectMetadataList{}
	left.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := c.List(ctx, left, client.InNamespace(drillNamespace)); err != nil {
		return err
	}
	if len(left.Items) > 0 {
		return fmt.Errorf("%s is there, with the finalizers %v", left.Items[0].Name, left.Items[0].Finalizers)
	}
	return nil
}
