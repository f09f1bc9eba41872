package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/atoll-dev/atoll/internal/reservedkeys"
)

// RevisionBump is added to the revision of a restored etcd: it exceeds what any client saw after the snapshot, so that clients list again
// instead of continuing with a history that no longer exists.
const RevisionBump = 1_000_000_000

// Target is the data directory of a member of a new etcd, with the flags of etcd that must be the same at its start.
type Target struct {
	DataDir, Name, InitialCluster, InitialClusterToken string
	InitialAdvertisePeerURLs                           []string
	// ID is that of a restore whose attempts are repeated until one succeeds; with "", a data directory that exists is refused.
	ID string
}

// beside is a file or directory next to the data directory, on the same volume.
func (t Target) beside(suffix string) string {
	return filepath.Join(filepath.Dir(t.DataDir), "."+filepath.Base(t.DataDir)+suffix)
}

// SnapshotFile is where the snapshot is while it is checked. It is not encrypted.
func (t Target) SnapshotFile() string { return t.beside(".snapshot") }

// IsRestored reports whether an earlier attempt of this restore has made the data directory.
func (t Target) IsRestored() (bool, error) {
	if t.ID == "" {
		return false, nil
	}
	made, err := os.ReadFile(t.beside(".restored"))
	if err == nil && string(made) == t.ID {
		_, err = os.Stat(t.DataDir)
	} else if err == nil {
		return false, nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Check refuses a target that exists: a restore never replaces data.
func (t Target) Check() error {
	entries, err := os.ReadDir(t.DataDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("reading the data directory: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty: a restore replaces no data; give another directory, or move its content away", t.DataDir)
	}
	return nil
}

// Restore makes a data directory of a snapshot file that was checked, with another identity of the cluster, a bumped revision, and all
// earlier revisions compacted. The directory exists only when it is complete.
func (t Target) Restore(file string) error {
	if err := t.Check(); err != nil {
		return err
	}
	incomplete := t.beside(".incomplete")
	if err := os.RemoveAll(incomplete); err != nil {
		return fmt.Errorf("removing what an earlier attempt has left: %w", err)
	}
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: incomplete, Name: t.Name, PeerURLs: t.InitialAdvertisePeerURLs,
		InitialCluster: t.InitialCluster, InitialClusterToken: t.InitialClusterToken, RevisionBump: RevisionBump, MarkCompacted: true,
		SkipHashCheck: true, // Mark has removed the hash, which was checked before
	})
	if err != nil {
		return errors.Join(fmt.Errorf("restoring into %s: %w", t.DataDir, err), os.RemoveAll(incomplete))
	}
	if t.ID != "" {
		if err := os.WriteFile(t.beside(".restored"), []byte(t.ID), 0o600); err != nil {
			return err
		}
	}
	if err := os.Rename(incomplete, t.DataDir); err != nil {
		return fmt.Errorf("restoring into %s: %w", t.DataDir, err)
	}
	return nil
}

// State is what a comparison needs of a snapshot file.
type State struct {
	// Latest is the revision of the last write.
	Latest int64
	// logicalClusters exist as of the revision that Read was called with.
	logicalClusters map[string]struct{}
	// reserved are the keys of package reservedkeys that the prefix has, and that of the cache embedded beside it, as of Latest.
	reserved map[string]*mvccpb.KeyValue
}

// maxReservedBytes bounds the values of reserved keys: names of owners and of backups.
const maxReservedBytes = 1 << 10

// Read reads a snapshot file as of a revision. Its memory grows with the number of logical clusters.
func Read(file, prefix string, revision int64) (*State, error) {
	db, err := bolt.Open(file, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("opening the snapshot: %w", err)
	}
	defer db.Close()
	out := &State{logicalClusters: map[string]struct{}{}, reserved: map[string]*mvccpb.KeyValue{}}
	clusters := logicalClusters(prefix)
	reserved := []string{reservedkeys.Owner(prefix), reservedkeys.Restored(prefix), reservedkeys.Owner(reservedkeys.EmbeddedCache(prefix))}
	err = db.View(func(tx *bolt.Tx) error {
		keys := tx.Bucket(schema.Key.Name())
		if keys == nil {
			return errors.New("the snapshot contains no keys of etcd")
		}
		// In the order of revisions.
		return keys.ForEach(func(k, v []byte) error {
			at := mvcc.BytesToRev(k)
			out.Latest = at.Main
			kv := &mvccpb.KeyValue{}
			if err := proto.Unmarshal(v, kv); err != nil {
				return fmt.Errorf("reading revision %d: %w", at.Main, err)
			}
			if key := string(kv.Key); slices.Contains(reserved, key) {
				if delete(out.reserved, key); !mvcc.IsTombstone(k) {
					out.reserved[key] = kv
				}
			}
			if at.Main > revision {
				return nil
			}
			name, ok := logicalClusterOf(string(kv.Key), clusters)
			switch {
			case !ok:
			case mvcc.IsTombstone(k):
				delete(out.logicalClusters, name)
			default:
				out.logicalClusters[name] = struct{}{}
			}
			return nil
		})
	})
	for key, kv := range out.reserved {
		if len(kv.Value) > maxReservedBytes {
			err = errors.Join(err, fmt.Errorf("key %s of the snapshot has a value of %d bytes, want at most %d", key, len(kv.Value), maxReservedBytes))
		}
	}
	return out, err
}

// Remove removes a logical cluster from the state, and reports whether it was there.
func (s *State) Remove(name string) bool {
	_, found := s.logicalClusters[name]
	delete(s.logicalClusters, name)
	return found
}

// LogicalClusters are the names that were not removed, sorted.
func (s *State) LogicalClusters() []string { return slices.Sorted(maps.Keys(s.logicalClusters)) }
