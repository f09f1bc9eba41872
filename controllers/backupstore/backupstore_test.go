package backupstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/test/programs"
)

// TestConditions checks stores of a real S3 server.
func TestConditions(t *testing.T) {
	bin := t.TempDir()
	if err := programs.Build(t.Context(), filepath.Join("..", "..", "test", "s3server"), bin, "."); err != nil {
		t.Fatal(err)
	}
	s3 := programs.StartS3(t, filepath.Join(bin, "s3server"), "backups")
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "kcp"
	for name, tc := range map[string]struct {
		change                func(*operatorv1alpha1.BackupStore, *corev1.Secret)
		ready, stalled, again bool
		text                  string
	}{
		"a bucket that is listed is ready": {func(*operatorv1alpha1.BackupStore, *corev1.Secret) {}, true, false, true, "the server lists bucket backups"},
		"a key with the end of a line": {func(_ *operatorv1alpha1.BackupStore, secret *corev1.Secret) {
			secret.Data["key"] = append(secret.Data["key"], '\n')
		}, true, false, true, "the server lists bucket backups"},
		"a missing key of a Secret is named": {func(_ *operatorv1alpha1.BackupStore, secret *corev1.Secret) { delete(secret.Data, "key") }, false, false, true,
			"Secret s3 with key key does not exist in namespace kcp"},
		"wrong credentials are the Secret's": {func(_ *operatorv1alpha1.BackupStore, secret *corev1.Secret) { secret.Data["key"] = []byte("wrong") }, false, false, true,
			"the store rejects the credentials (SignatureDoesNotMatch): correct the Secret of s3Credentials"},
		"a bucket that does not exist": {func(store *operatorv1alpha1.BackupStore, _ *corev1.Secret) { store.Spec.Bucket = "absent" }, false, false, true,
			"bucket absent does not exist: create it"},
		"a server that does not answer": {func(store *operatorv1alpha1.BackupStore, _ *corev1.Secret) {
			store.Spec.EndpointURL = "http://127.0.0.1:1"
		}, false, false, true,
			"127.0.0.1:1 does not answer"},
		"a CA without certificates stalls": {func(store *operatorv1alpha1.BackupStore, _ *corev1.Secret) {
			store.Spec.EndpointCA = &operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"}
		}, false, true, true, "endpointCA contains no certificate"},
		"a recipient that is none stalls": {func(store *operatorv1alpha1.BackupStore, _ *corev1.Secret) {
			store.Spec.Encryption.Recipients = []string{"age1x"}
		}, false, true, true,
			"recipient 0 is no public key of age"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3", Namespace: namespace}, Data: map[string][]byte{"id": []byte(programs.S3AccessKey), "key": []byte(programs.S3SecretKey)}}
			store := &operatorv1alpha1.BackupStore{ObjectMeta: metav1.ObjectMeta{Name: "store", Namespace: namespace}, Spec: operatorv1alpha1.BackupStoreSpec{
				EndpointURL: "http://" + s3.Address, Bucket: "backups", Encryption: operatorv1alpha1.BackupEncryption{Recipients: []string{identity.Recipient().String()}},
				S3Credentials: operatorv1alpha1.S3Credentials{AccessKeyID: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"}, SecretAccessKey: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "key"}},
			}}
			tc.change(store, secret)
			cluster := memory.NewClient(t, store, secret)
			r := NewReconciler(reconcile.Config{Cluster: apply.Cluster{Client: cluster}, Recorder: events.NewFakeRecorder(100), Now: time.Now})
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(store)})
			if err != nil {
				t.Fatal(err)
			}
			if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(store), store); err != nil {
				t.Fatal(err)
			}
			conditions := store.Status.Conditions
			reachable := meta.FindStatusCondition(conditions, operatorv1alpha1.ConditionReachable)
			if reachable == nil || !strings.Contains(reachable.Message, tc.text) || meta.IsStatusConditionTrue(conditions, operatorv1alpha1.ConditionReady) != tc.ready ||
				meta.IsStatusConditionTrue(conditions, operatorv1alpha1.ConditionStalled) != tc.stalled || (result.RequeueAfter > 0) != tc.again {
				t.Errorf("checked again in %s, got %+v", result.RequeueAfter, conditions)
			}
		})
	}
	if left, err := os.ReadDir(filepath.Join(s3.Objects, "backups")); err != nil || len(left) > 0 {
		t.Errorf("a check left %v, %v", left, err)
	}
}
