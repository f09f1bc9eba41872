package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	backupcontroller "github.com/atoll-dev/atoll/controllers/backup"
	"github.com/atoll-dev/atoll/controllers/backupstore"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/backup/objectstore"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	testinstallation "github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/kubeapiserver/operatorapi"
	"github.com/atoll-dev/atoll/test/programs"
)

const namespace = "kcp"

// TestSchedule runs the real operator, with no more rights than its role, on a stock kube-apiserver and a real S3 server: it creates a Backup
// once, and removes old ones from both.
func TestSchedule(t *testing.T) {
	root := filepath.Join("..", "..")
	if err := programs.Build(t.Context(), root, bin, "./cmd/operator"); err != nil {
		t.Fatal(err)
	}
	cluster, c := operatorapi.Start(t, root, bin)
	s := startS3(t)
	grantRole(t, c, filepath.Join(root, "config", "rbac", "role.yaml"))
	grantRole(t, c, filepath.Join(root, "config", "restore-drill", "role.yaml"))

	key := func(name string) operatorv1alpha1.SecretKeyReference {
		return operatorv1alpha1.SecretKeyReference{Name: "s3", Key: name}
	}
	store := &operatorv1alpha1.BackupStore{ObjectMeta: metav1.ObjectMeta{Name: "store", Namespace: namespace}, Spec: operatorv1alpha1.BackupStoreSpec{
		EndpointURL: "http://" + s.address, Bucket: bucket, S3Credentials: operatorv1alpha1.S3Credentials{AccessKeyID: key("id"), SecretAccessKey: key("key")},
		Encryption: operatorv1alpha1.BackupEncryption{Recipients: []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}},
	}}
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3", Namespace: namespace}, StringData: map[string]string{"id": programs.S3AccessKey, "key": programs.S3SecretKey}}, store)
	spec := operatorv1alpha1.BackupSpec{RootShardRef: corev1.LocalObjectReference{Name: rootShard}, StoreRef: corev1.LocalObjectReference{Name: "store"}}
	yearly := &operatorv1alpha1.BackupSchedule{ObjectMeta: metav1.ObjectMeta{Name: "yearly", Namespace: namespace}, Spec: operatorv1alpha1.BackupScheduleSpec{
		BackupSpec: spec, Schedule: "@yearly", TimeZone: "Europe/Berlin", Immediate: true, Retention: &operatorv1alpha1.BackupRetention{KeepLast: ptr.To[int32](1)},
	}}
	fresh := yearly.DeepCopy()
	fresh.Name = "fresh"
	bucketOf, err := objectstore.OpenWith(backupstore.Config(store, rootShard), nil, objectstore.Credentials{AccessKeyID: programs.S3AccessKey, SecretAccessKey: programs.S3SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	defer bucketOf.Close()
	for _, name := range []string{"a", "b", "by-hand"} {
		complete(t, c, bucketOf, name, spec)
	}
	create(t, c, yearly, fresh)

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	testinstallation.WriteKubeconfig(t, cluster.User(t, cluster.Config.Host, "operator"), kubeconfig)
	programs.Start(t, t.TempDir(), filepath.Join(bin, "operator"), "--kubeconfig="+kubeconfig, "--default-image=atoll:test", "--health-probe-bind-address=0", "--restore-drill-namespace="+drillNamespace)

	shardtesting.Eventually(t, "the schedules to be ready", func(ctx context.Context) error {
		for _, schedule := range []*operatorv1alpha1.BackupSchedule{yearly, fresh} {
			if err := c.Get(ctx, client.ObjectKeyFromObject(schedule), schedule); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(schedule.Status.Conditions, operatorv1alpha1.ConditionRetentionEnforced) || !meta.IsStatusConditionTrue(schedule.Status.Conditions, operatorv1alpha1.ConditionReady) {
				return fmt.Errorf("%s: %+v", schedule.Name, schedule.Status)
			}
		}
		return nil
	})
	first := "fresh-" + fresh.CreationTimestamp.UTC().Format("20060102150405")
	list := &operatorv1alpha1.BackupList{}
	if err := c.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, backup := range list.Items {
		names = append(names, backup.Name)
	}
	slices.Sort(names)
	folders, err := bucketOf.List(t.Context())
	if err != nil || len(folders) != 2 || !slices.Equal(names, []string{"b", "by-hand", first}) {
		t.Errorf("there are Backups %v and folders %v, %v", names, folders, err)
	}
	if status := fresh.Status; status.LastBackup != first || status.NextScheduleTime == nil || !strings.HasSuffix(status.NextScheduleTime.UTC().Format(time.RFC3339), "-12-31T23:00:00Z") {
		t.Errorf("the status is %+v", status)
	}
	if yearly.Status.LastSuccessfulTime == nil {
		t.Errorf("the status is %+v", yearly.Status)
	}
	// With the same operator.
	run := newPlugIn(t, cluster.Config)
	t.Run("Restores", func(t *testing.T) { testRestores(t, c, run, s) })
	t.Run("Commands", func(t *testing.T) { testCommands(t, run, first) })
	t.Run("Drills", func(t *testing.T) { testDrills(t, cluster.User(t, cluster.Config.Host, "operator"), c, s) })
}

func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// complete creates a Backup that is completed, with its manifest in the store. It belongs to the schedule, unless it was made by hand.
func complete(t *testing.T, c client.Client, store *objectstore.Store, name string, spec operatorv1alpha1.BackupSpec) {
	t.Helper()
	backup := &operatorv1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: spec}
	if name != "by-hand" {
		backup.Labels = map[string]string{operatorv1alpha1.LabelBackupSchedule: "yearly"}
	}
	create(t, c, backup)
	id := backupcontroller.ID(backup) + "-0000000a"
	backup.Status = operatorv1alpha1.BackupStatus{
		Phase: operatorv1alpha1.BackupPhaseCompleted, BackupID: id, DestinationPath: store.Location(id), StoppedAt: ptr.To(metav1.Now()),
	}
	if err := errors.Join(c.Status().Update(t.Context(), backup), store.PutBytes(t.Context(), manifest.Key(id, manifest.Name), []byte("{}"))); err != nil {
		t.Fatal(err)
	}
}

// grantRole gives the role of the operator to the user operator.
func grantRole(t *testing.T, c client.Client, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal(content, role); err != nil {
		t.Fatal(err)
	}
	create(t, c, role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "operator"}},
	})
}
