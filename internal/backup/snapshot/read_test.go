package snapshot

import (
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// writeSnapshot writes a database with keys and their values, one a revision.
func writeSnapshot(t *testing.T, keys ...[2]string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot")
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		bucket, err := tx.CreateBucket(schema.Key.Name())
		if err != nil {
			return err
		}
		for i, key := range keys {
			content, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(key[0]), Value: []byte(key[1])})
			if err != nil {
				return err
			}
			if err := bucket.Put(mvcc.RevToBytes(mvcc.Revision{Main: int64(i + 2)}, mvcc.NewRevBytes()), content); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestReserved reads snapshots with objects of tenants that have the names of reserved keys.
func TestReserved(t *testing.T) {
	role := func(name string) string { return "/registry/rbac.authorization.k8s.io/roles/tenant/default/" + name }
	file := writeSnapshot(t, [2]string{"/registry/~owner", "a"}, [2]string{"/cache/~owner", "a"}, [2]string{"/registry/~restored", "b"}, [2]string{"/other/~owner", "a"},
		[2]string{role("~owner"), "a"}, [2]string{role("~restored"), strings.Repeat("x", maxReservedBytes+1)})
	state, err := Read(file, "/registry", 100)
	if err != nil || len(state.reserved) != 3 {
		t.Errorf("%v: got %v, want the keys of the prefix and of its cache", err, state.reserved)
	}
	changes, err := Owner{Name: "c", TakeOver: true}.changes("/registry", state.reserved)
	if err != nil || len(changes) != 2 || changes["/registry/~owner"] != "c" || changes["/cache/~owner"] != "c" {
		t.Errorf("%v: the owner is written to %v", err, changes)
	}
	file = writeSnapshot(t, [2]string{"/registry/~owner", strings.Repeat("x", maxReservedBytes+1)})
	if _, err := Read(file, "/registry", 100); err == nil || !strings.Contains(err.Error(), "/registry/~owner") {
		t.Errorf("an owner that is too long: %v", err)
	}
}

func TestPrefix(t *testing.T) {
	for _, tc := range []struct {
		want, saved string
		refused     bool
	}{{"", "/a", false}, {"/a", "/a", false}, {"a/", "/a", false}, {"/registry", "/a", true}} {
		if err := (Owner{Prefix: tc.want}).CheckPrefix(tc.saved); (err != nil) != tc.refused {
			t.Errorf("prefix %q of a backup of %q: %v", tc.want, tc.saved, err)
		}
	}
}
