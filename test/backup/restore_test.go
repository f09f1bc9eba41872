package backup

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/backup/snapshot"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestRestore saves the etcd of a shard with workspaces, restores it beside, and starts the shard on what was restored.
func TestRestore(t *testing.T) {
	s := startS3(t)
	etcd := etcdtest.Start(t)
	i := newInstallation(t, s, etcd)
	useEtcd := func(server *embeddedetcd.Server) func(*options.Options) {
		return func(o *options.Options) {
			transport := &o.Etcd.StorageConfig.Transport
			transport.ServerList, transport.TrustedCAFile, transport.CertFile, transport.KeyFile = []string{server.Endpoint}, server.CAFile, server.CertFile, server.KeyFile
		}
	}
	directory := t.TempDir()
	shard := shardtesting.StartIn(t, directory, useEtcd(etcd))
	cluster := shard.NewWorkspace(t, "root", "saved").Spec.Cluster
	create := func(shard *shardtesting.Shard, name string) {
		t.Helper()
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{"key": name}}
		if err := shard.Client(t, shard.Masters(t)).Create(shardtesting.In(t.Context(), cluster), configMap); err != nil {
			t.Fatal(err)
		}
	}
	create(shard, "before")
	result := i.mustCreate(t)
	create(shard, "after")
	shard.NewWorkspace(t, "root", "late")
	if err := shard.Stop(); err != nil {
		t.Fatal(err)
	}

	if result.Shards != 1 || result.Secrets != 1 || result.LogicalClusters < 2 || result.SnapshotSize == 0 || result.Size == 0 || result.StoppedAt.Before(result.StartedAt) {
		t.Errorf("the result is %+v", result)
	}
	saved := i.manifest(t)
	if len(saved.Shards) != 1 || saved.Shards[0].LogicalClusters != result.LogicalClusters || saved.Shards[0].ExportIdentities == 0 || len(saved.Secrets.Certificates) != 1 {
		t.Errorf("the manifest is %+v", saved)
	}
	if output, err := i.run(t, "list"); err != nil || !strings.Contains(output, result.BackupID) {
		t.Errorf("%v: the list is\n%s", err, output)
	}
	if output, err := i.read(t, "verify", "--manifest-digest", result.ManifestDigest); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	t.Run("Secrets", func(t *testing.T) { checkSecrets(t, i) })

	restoredDirectory := filepath.Join(t.TempDir(), "restored")
	target := []string{"--shard", rootShard, "--data-dir", restoredDirectory, "--name", "embedded", "--initial-cluster", "embedded=https://localhost:1", "--initial-advertise-peer-urls", "https://localhost:1"}
	output, err := i.read(t, "restore", append([]string{"--manifest-digest", result.ManifestDigest}, target...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(restoredDirectory), ".*")); err != nil || len(left) > 0 {
		t.Errorf("the restore left %v, %v", left, err)
	}
	output, err = i.read(t, "restore", target...)
	expectError(t, output, err, "is not empty: a restore replaces no data")

	restored, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{Directory: restoredDirectory, UnsafeNoFsync: true, WALSizeBytes: 5000, ECDSACurve: etcdtest.Curve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(restored.Close)
	compareKeys(t, i.etcdClient, etcdtest.NewClient(t, restored), saved.Shards[0])

	shard = shardtesting.StartIn(t, directory, useEtcd(restored))
	c := shard.Client(t, shard.Masters(t))
	list := &corev1.ConfigMapList{}
	if err := c.List(shardtesting.In(t.Context(), cluster), list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, configMap := range list.Items {
		if configMap.Data["key"] != "" {
			names = append(names, configMap.Name)
		}
	}
	if len(names) != 1 || names[0] != "before" {
		t.Errorf("the restored workspace has the config maps %v, want the one from before the backup", names)
	}
	if err := c.Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: "late"}, &tenancyv1alpha1.Workspace{}); !apierrors.IsNotFound(err) {
		t.Errorf("a workspace from after the backup: %v", err)
	}
	create(shard, "again")
	shard.NewWorkspace(t, "root", "late")
}

// compareKeys compares all keys of an etcd with those of a restored one, as of the revision of the snapshot.
func compareKeys(t *testing.T, old, restored *clientv3.Client, saved manifest.Shard) {
	t.Helper()
	got, err := restored.Get(t.Context(), "/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	mark := slices.IndexFunc(got.Kvs, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == reservedkeys.Restored(saved.Prefix) })
	if mark < 0 {
		t.Fatal("the restored etcd is not marked")
	}
	got.Kvs = slices.Delete(got.Kvs, mark, mark+1)
	revision := got.Header.Revision - snapshot.RevisionBump - 1 // the mark
	if revision < saved.RevisionFrom || revision > saved.RevisionTo {
		t.Errorf("the snapshot is of revision %d, want one from %d to %d", revision, saved.RevisionFrom, saved.RevisionTo)
	}
	want, err := old.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Kvs) == 0 || len(got.Kvs) != len(want.Kvs) {
		t.Fatalf("the restored etcd has %d keys, want %d", len(got.Kvs), len(want.Kvs))
	}
	for n, kv := range want.Kvs {
		if !bytes.Equal(kv.Key, got.Kvs[n].Key) || !bytes.Equal(kv.Value, got.Kvs[n].Value) || kv.ModRevision != got.Kvs[n].ModRevision {
			t.Fatalf("key %s differs after the restore from %s", got.Kvs[n].Key, kv.Key)
		}
	}
	if _, err := restored.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithRev(revision)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("a revision from before the restore: %v, want that it is compacted", err)
	}
}

func checkSecrets(t *testing.T, i *installation) {
	file := filepath.Join(t.TempDir(), "secrets.tar")
	if output, err := i.read(t, "secrets", "--output", file); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	content, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	archive := tar.NewReader(content)
	header, err := archive.Next()
	if err != nil || header.Name != "secrets/root-ca.json" {
		t.Fatalf("the bundle begins with %+v, %v", header, err)
	}
	var secret corev1.Secret
	if err := json.NewDecoder(archive).Decode(&secret); err != nil {
		t.Fatal(err)
	}
	if secret.Kind != "Secret" || secret.Type != corev1.SecretTypeTLS || len(secret.Data) != 1 || !bytes.Contains(secret.Data["tls.crt"], []byte("CERTIFICATE")) ||
		secret.Annotations["cert-manager.io/issuer-name"] == "" {
		t.Errorf("the Secret is %+v", secret)
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the Secret: %v", err)
	}
}
