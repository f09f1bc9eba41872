package backupschedule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/backup"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/test/programs"
)

// ourPrefix is that of the installation in the bucket, with the prefix of the store.
const ourPrefix = "prod/kcp/root/"

// bucket is one of a real S3 server, behind a proxy that records what is removed.
type bucket struct {
	t         *testing.T
	name      string
	directory string
	client    *minio.Client
	proxy     *httptest.Server
	requests  atomic.Int64
	removed   []string // the handler of the proxy appends; requests of a pass come one after another
	// breakAfter is the number of removals after which the proxy breaks connections; negative for never.
	breakAfter int
}

func newBucket(t *testing.T, s3 *programs.S3, name string) *bucket {
	t.Helper()
	b := &bucket{t: t, name: name, directory: filepath.Join(s3.Objects, name), breakAfter: -1}
	if err := os.MkdirAll(b.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: s3.Address})
		r.Out.Host = r.In.Host // the signature covers it
	}}
	b.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.requests.Add(1)
		if r.Method == http.MethodDelete && r.URL.RawQuery == "" {
			if len(b.removed) == b.breakAfter {
				panic(http.ErrAbortHandler)
			}
			b.removed = append(b.removed, strings.TrimPrefix(r.URL.Path, "/"+name+"/"))
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(b.proxy.Close)
	var err error
	b.client, err = minio.New(s3.Address, &minio.Options{Creds: credentials.NewStaticV4(programs.S3AccessKey, programs.S3SecretKey, ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bucket) put(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		if _, err := b.client.PutObject(b.t.Context(), b.name, key, strings.NewReader("x"), 1, minio.PutObjectOptions{SendContentMd5: true}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// putBackup stores the objects of an attempt of a Backup below a prefix, and returns their keys.
func (b *bucket) putBackup(prefix, id string) []string {
	b.t.Helper()
	keys := []string{prefix + id + "/" + manifest.SnapshotName("root"), prefix + id + "/" + manifest.SecretsName, prefix + id + "/" + manifest.Name}
	b.put(keys...)
	return keys
}

// keys are those of all objects, sorted.
func (b *bucket) keys() []string {
	b.t.Helper()
	var out []string
	for object := range b.client.ListObjectsIter(b.t.Context(), b.name, minio.ListObjectsOptions{Recursive: true}) {
		if object.Err != nil {
			b.t.Fatal(object.Err)
		}
		out = append(out, object.Key)
	}
	slices.Sort(out)
	return out
}

func (b *bucket) expect(keys ...[]string) {
	b.t.Helper()
	want := slices.Concat(keys...)
	slices.Sort(want)
	if got := b.keys(); !slices.Equal(got, want) {
		b.t.Errorf("the bucket has %v, want %v", got, want)
	}
}

// store is the BackupStore of the bucket, with its Secret.
func (b *bucket) store() []client.Object {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3", Namespace: namespace}, Data: map[string][]byte{"id": []byte(programs.S3AccessKey), "key": []byte(programs.S3SecretKey)}}
	store := &operatorv1alpha1.BackupStore{ObjectMeta: metav1.ObjectMeta{Name: "store", Namespace: namespace}, Spec: operatorv1alpha1.BackupStoreSpec{
		EndpointURL: b.proxy.URL, Bucket: b.name, Prefix: "prod", S3Credentials: operatorv1alpha1.S3Credentials{
			AccessKeyID: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"}, SecretAccessKey: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "key"},
		},
	}}
	return []client.Object{secret, store}
}

// newEnded is a Backup of a day of January 2030 that has ended, and the name of its folder.
func (b *bucket) newEnded(day int, phase operatorv1alpha1.BackupPhase) (*operatorv1alpha1.Backup, string) {
	out := newBackup(fmt.Sprintf("day-%d", day), fmt.Sprintf("2030-01-%02d 03:00", day), phase)
	out.UID = types.UID(fmt.Sprintf("%08d-1111", day))
	folder := backup.ID(out) + "-0000000a"
	if phase == completed {
		out.Status.BackupID, out.Status.DestinationPath = folder, "s3://"+b.name+"/"+ourPrefix+folder
	}
	return out, folder
}

func newKeeping(last int32) *operatorv1alpha1.BackupSchedule {
	out := newSchedule()
	out.Spec.Retention = &operatorv1alpha1.BackupRetention{KeepLast: ptr.To(last)}
	return out
}

// TestRetention removes Backups from a real S3 server.
func TestRetention(t *testing.T) {
	bin := t.TempDir()
	if err := programs.Build(t.Context(), filepath.Join("..", "..", "test", "s3server"), bin, "."); err != nil {
		t.Fatal(err)
	}
	s3 := programs.StartS3(t, filepath.Join(bin, "s3server"), "backups")
	const now, enforced = "2030-01-20 12:00", operatorv1alpha1.ConditionRetentionEnforced

	t.Run("removes what is not to be kept, and nothing of others", func(t *testing.T) {
		b := newBucket(t, s3, "plain")
		day1, id1 := b.newEnded(1, completed)
		day2, id2 := b.newEnded(2, failed)
		day3, id3 := b.newEnded(3, completed)
		day4, id4 := b.newEnded(4, completed)
		manual, manualID := b.newEnded(5, completed)
		manual.Labels = nil
		elsewhere, elsewhereID := b.newEnded(6, completed)
		elsewhere.Spec.RootShardRef.Name = "other"
		ended := b.putBackup(ourPrefix, id1)
		interrupted, second := ourPrefix+id2+"/"+manifest.SecretsName, ourPrefix+backup.ID(day4)+"-0000000b/"+manifest.SecretsName
		b.put(interrupted, second)
		kept := slices.Concat(b.putBackup(ourPrefix, id3), b.putBackup(ourPrefix, id4), b.putBackup(ourPrefix, manualID), b.putBackup("prod/kcp/other/", elsewhereID),
			b.putBackup("prod/kcp/other/", id1), b.putBackup("prod/other/root/", id1), b.putBackup(ourPrefix, "20291231T030000Z-ffffffff-0000000a"))
		b.put(ourPrefix+"20291231T030000Z-ffffffff-0000000b/"+manifest.SecretsName, ourPrefix+"notes.txt")
		kept = append(kept, ourPrefix+"20291231T030000Z-ffffffff-0000000b/"+manifest.SecretsName, ourPrefix+"notes.txt")
		core := minio.Core{Client: b.client}
		for _, id := range []string{backup.ID(day4), "20291231T030000Z-ffffffff"} {
			if _, err := core.NewMultipartUpload(t.Context(), b.name, ourPrefix+id+"-0000000c/"+manifest.SnapshotName("root"), minio.PutObjectOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		f := newFixture(t, newKeeping(2), append(b.store(), day1, day2, day3, day4, manual, elsewhere)...)
		f.reconcile(now)
		f.expectCondition(enforced, metav1.ConditionTrue, "")
		f.expect("day-3", "day-4", "day-5", "day-6")
		b.expect(kept)
		if len(b.removed) != len(ended)+2 || b.removed[0] != ourPrefix+id1+"/"+manifest.Name {
			t.Errorf("removed are %v, want the manifest first", b.removed)
		}
		uploads, err := core.ListMultipartUploads(t.Context(), b.name, "", "", "", "", 0)
		if err != nil || len(uploads.Uploads) != 1 || !strings.Contains(uploads.Uploads[0].Key, "ffffffff") {
			t.Errorf("uploads are %+v, %v", uploads.Uploads, err)
		}
		before := b.requests.Load()
		f.reconcile("2030-01-20 12:10")
		if b.requests.Load() != before {
			t.Error("it asks the store again within minutes")
		}
	})

	t.Run("nothing is removed before a Restore is released", func(t *testing.T) {
		b := newBucket(t, s3, "restored")
		day1, id1 := b.newEnded(1, completed)
		day2, id2 := b.newEnded(2, completed)
		kept := slices.Concat(b.putBackup(ourPrefix, id1), b.putBackup(ourPrefix, id2))
		restore := &operatorv1alpha1.Restore{ObjectMeta: metav1.ObjectMeta{Name: "back", Namespace: day1.Namespace}}
		restore.Spec.RootShardRef = day1.Spec.RootShardRef
		f := newFixture(t, newKeeping(1), append(b.store(), day1, day2, restore)...)
		f.reconcile(now)
		f.expectCondition(enforced, metav1.ConditionFalse, "until Restore back of this installation is released")
		f.expect("day-1", "day-2")
		b.expect(kept)
		restore.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionReleased, Status: metav1.ConditionTrue, Reason: "Released", LastTransitionTime: metav1.Now()}}
		if err := f.client.Status().Update(t.Context(), restore); err != nil {
			t.Fatal(err)
		}
		f.reconcile(now)
		f.expect("day-2")
	})

	t.Run("an interrupted removal leaves no backup, and is continued", func(t *testing.T) {
		b := newBucket(t, s3, "interrupted")
		day1, id1 := b.newEnded(1, completed)
		day2, id2 := b.newEnded(2, completed)
		all, kept := b.putBackup(ourPrefix, id1), b.putBackup(ourPrefix, id2)
		f := newFixture(t, newKeeping(1), append(b.store(), day1, day2)...)
		b.breakAfter = 1
		if _, err := f.try(now); err == nil {
			t.Error("a connection that breaks is no error")
		}
		f.expect("day-1", "day-2")
		b.expect(kept, all[:2])
		b.breakAfter = -1
		f.object.Spec.Retention.KeepLast = ptr.To(int32(2))
		if err := f.client.Update(t.Context(), f.object); err != nil {
			t.Fatal(err)
		}
		f.reconcile(now)
		f.expectCondition(enforced, metav1.ConditionTrue, "")
		f.expect("day-2")
		b.expect(kept)
	})

	t.Run("a pass that fails is repeated soon", func(t *testing.T) {
		b := newBucket(t, s3, "repeated")
		day1, _ := b.newEnded(1, completed)
		day2, id2 := b.newEnded(2, completed)
		b.putBackup(ourPrefix, id2)
		f := newFixture(t, newKeeping(2), append(b.store(), day1, day2)...)
		f.reconcile(now)
		f.expect("day-1", "day-2")
		f.object.Spec.Retention.KeepLast, f.object.Generation = ptr.To(int32(1)), 2
		if err := f.client.Update(t.Context(), f.object); err != nil {
			t.Fatal(err)
		}
		works := f.client
		f.client = interceptor.NewClient(works.(client.WithWatch), interceptor.Funcs{
			Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				return errors.New("no connection")
			},
		})
		if _, err := f.try(now); err == nil {
			t.Error("a connection that breaks is no error")
		}
		f.client = works
		f.reconcile(now)
		f.expect("day-2")
	})

	t.Run("a Backup that was moved does not keep others", func(t *testing.T) {
		b := newBucket(t, s3, "moved")
		day1, _ := b.newEnded(1, completed)
		day1.Status.DestinationPath = "s3://before/" + ourPrefix + day1.Status.BackupID
		day2, id2 := b.newEnded(2, completed)
		day3, id3 := b.newEnded(3, completed)
		b.putBackup(ourPrefix, id2)
		f := newFixture(t, newKeeping(1), append(b.store(), day1, day2, day3)...)
		kept := b.putBackup(ourPrefix, id3)
		f.reconcile(now)
		f.expectCondition(enforced, metav1.ConditionFalse, "Backup day-1 is in s3://before/")
		f.expect("day-1", "day-3")
		b.expect(kept)
	})

	t.Run("failed ones that have a manifest stay, and do not keep it busy", func(t *testing.T) {
		b := newBucket(t, s3, "lost")
		objects := b.store()
		var kept [][]string
		for day := 1; day <= 1+maxRemoved+maxFailed; day++ {
			ended, id := b.newEnded(day, failed)
			kept = append(kept, b.putBackup(ourPrefix, id))
			objects = append(objects, ended)
		}
		f := newFixture(t, newKeeping(1), objects...)
		if after := f.reconcile("2030-02-20 12:00"); after <= time.Second {
			t.Errorf("reconciled again after %s", after)
		}
		f.expectCondition(enforced, metav1.ConditionTrue, "")
		b.expect(kept...)
	})

	t.Run("a lock refuses, and is not asked all the time", func(t *testing.T) {
		b := newBucket(t, s3, "locked")
		if err := b.client.SetBucketObjectLockConfig(t.Context(), b.name, ptr.To(minio.Compliance), ptr.To(uint(1)), ptr.To(minio.Days)); err != nil {
			t.Fatal(err)
		}
		day1, id1 := b.newEnded(1, completed)
		day2, id2 := b.newEnded(2, completed)
		all := slices.Concat(b.putBackup(ourPrefix, id1), b.putBackup(ourPrefix, id2))
		f := newFixture(t, newKeeping(1), append(b.store(), day1, day2)...)
		after := f.reconcile("2030-01-03 01:00")
		const text = "removing " + ourPrefix + "20300101T030000Z-00000001-0000000a/manifest.json: the store refuses (AccessDenied): allow the credentials s3:DeleteObject on bucket locked, or wait until the lock of the object ends"
		f.expectCondition(enforced, metav1.ConditionFalse, text)
		f.expectCondition(operatorv1alpha1.ConditionReady, metav1.ConditionTrue, "see condition RetentionEnforced")
		f.expect("day-1", "day-2")
		b.expect(all)
		if after <= 0 || after > maxRequeue {
			t.Errorf("reconciled again after %s", after)
		}
		f.reconcile("2030-01-03 01:14")
		f.expectCondition(enforced, metav1.ConditionFalse, text)
		if len(b.removed) != 1 {
			t.Errorf("removals are tried again within minutes: %v", b.removed)
		}
		f.reconcile("2030-01-03 01:15")
		if len(b.removed) != 2 {
			t.Errorf("removals are not tried again: %v", b.removed)
		}
	})

	t.Run("many are removed in several reconciles", func(t *testing.T) {
		b := newBucket(t, s3, "many")
		objects := b.store()
		for day := 1; day <= maxRemoved+2; day++ {
			ended, id := b.newEnded(day, completed)
			b.put(ourPrefix + id + "/" + manifest.Name)
			objects = append(objects, ended)
		}
		f := newFixture(t, newKeeping(1), objects...)
		if after := f.reconcile(now); after != time.Second || len(f.names()) != 2 {
			t.Errorf("reconciled again after %s, there are %v", after, f.names())
		}
		f.reconcile(now)
		f.expect(fmt.Sprintf("day-%d", maxRemoved+2))
	})

	b := newBucket(t, s3, "unchanged")
	day1, id1 := b.newEnded(1, completed)
	day2, id2 := b.newEnded(2, completed)
	all := slices.Concat(b.putBackup(ourPrefix, id1), b.putBackup(ourPrefix, id2))
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.BackupSchedule, *operatorv1alpha1.BackupStore, *operatorv1alpha1.Backup)
		want   string
	}{
		"a store that was moved": {func(_ *operatorv1alpha1.BackupSchedule, store *operatorv1alpha1.BackupStore, _ *operatorv1alpha1.Backup) {
			store.Spec.Prefix = "later"
		}, "Backup day-1 is in s3://unchanged/prod/kcp/root/20300101T030000Z-00000001-0000000a, not in s3://unchanged/later/kcp/root/20300101T030000Z-00000001-*"},
		"a status of another Backup": {func(_ *operatorv1alpha1.BackupSchedule, _ *operatorv1alpha1.BackupStore, first *operatorv1alpha1.Backup) {
			first.Status.BackupID, first.Status.DestinationPath = day2.Status.BackupID, day2.Status.DestinationPath
		}, "remove the folder and the Backup by hand"},
		"credentials that do not exist": {func(schedule *operatorv1alpha1.BackupSchedule, _ *operatorv1alpha1.BackupStore, _ *operatorv1alpha1.Backup) {
			schedule.Spec.Retention.S3Credentials = &operatorv1alpha1.S3Credentials{AccessKeyID: operatorv1alpha1.SecretKeyReference{Name: "remover", Key: "id"}, SecretAccessKey: operatorv1alpha1.SecretKeyReference{Name: "remover", Key: "id"}}
		}, "Secret remover with key id does not exist in namespace kcp"},
		"credentials that are wrong": {func(schedule *operatorv1alpha1.BackupSchedule, _ *operatorv1alpha1.BackupStore, _ *operatorv1alpha1.Backup) {
			schedule.Spec.Retention.S3Credentials = &operatorv1alpha1.S3Credentials{AccessKeyID: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"}, SecretAccessKey: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"}}
		}, "the store rejects the credentials"},
	} {
		t.Run("removes nothing with "+name, func(t *testing.T) {
			schedule, objects, first := newKeeping(1), b.store(), day1.DeepCopy()
			tc.change(schedule, objects[1].(*operatorv1alpha1.BackupStore), first)
			f := newFixture(t, schedule, append(objects, first, day2.DeepCopy())...)
			f.reconcile(now)
			f.expectCondition(enforced, metav1.ConditionFalse, tc.want)
			f.expect("day-1", "day-2")
			b.expect(all)
		})
	}
	for name, change := range map[string]func(*operatorv1alpha1.BackupSchedule){
		"no retention":                 func(schedule *operatorv1alpha1.BackupSchedule) { schedule.Spec.Retention = nil },
		"a schedule that is suspended": func(schedule *operatorv1alpha1.BackupSchedule) { schedule.Spec.Suspend = true },
	} {
		t.Run("removes nothing with "+name, func(t *testing.T) {
			schedule := newKeeping(1)
			change(schedule)
			f := newFixture(t, schedule, append(b.store(), day1.DeepCopy(), day2.DeepCopy())...)
			f.reconcile(now)
			f.expect("day-1", "day-2")
			b.expect(all)
			if condition := meta.FindStatusCondition(f.object.Status.Conditions, enforced); condition != nil {
				t.Errorf("the condition is %+v", condition)
			}
		})
	}
}
