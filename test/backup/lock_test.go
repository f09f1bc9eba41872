package backup

import (
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/test/programs"
)

// TestObjectLock makes a backup whose objects nobody can remove for an hour.
func TestObjectLock(t *testing.T) {
	s := startS3(t)
	i := newInstallation(t, s, etcdtest.Start(t))
	i.fill(t, 9) // more than a part of an upload
	i.config.Store.ObjectLock = &config.ObjectLock{Mode: "Compliance", RetainSeconds: 3600}
	result, err := i.create(t)
	expectError(t, result.Error, err, "bucket backups does not lock objects (InvalidRequest): enable object lock on it, or remove objectLock")

	client, err := minio.New(s.address, &minio.Options{Creds: credentials.NewStaticV4(programs.S3AccessKey, programs.S3SecretKey, ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.SetBucketObjectLockConfig(t.Context(), bucket, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	i.mustCreate(t)
	if output, err := i.read(t, "verify"); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	for _, name := range []string{manifest.Name, manifest.SecretsName, manifest.SnapshotName(rootShard), manifest.InventoryName(rootShard)} {
		key := "kcp/" + manifest.Key(i.id, name)
		info, err := client.StatObject(t.Context(), bucket, key, minio.StatObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mode := info.Metadata.Get("X-Amz-Object-Lock-Mode")
		until, err := time.Parse(time.RFC3339, info.Metadata.Get("X-Amz-Object-Lock-Retain-Until-Date"))
		if left := time.Until(until); err != nil || mode != "COMPLIANCE" || left < 50*time.Minute || left > time.Hour {
			t.Errorf("%s is locked by %s until %s: %v", name, mode, until, err)
		}
		if err := client.RemoveObject(t.Context(), bucket, key, minio.RemoveObjectOptions{}); err == nil || !strings.Contains(err.Error(), "object lock") {
			t.Errorf("removing %s: %v", name, err)
		}
	}
}
