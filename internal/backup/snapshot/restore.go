package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// RevisionBump is added to the revision of a restored etcd: it exceeds what any client saw after the snapshot, so that clients list again
// instead of continuing with a history that no longer exists.
const RevisionBump = 1_000_000_000

// Target is the data directory of a member of a new etcd, with the flags of etcd that must be the same at its start.
type Target struct {
	DataDir, Name, InitialCluster, InitialClusterToken string
	InitialAdvertisePeerURLs                           []string
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

// Restore makes a data directory of a snapshot file, with another identity of the cluster, a bumped revision, and all earlier revisions
// compacted.
func (t Target) Restore(file string) error {
	if err := t.Check(); err != nil {
		return err
	}
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: t.DataDir, Name: t.Name, PeerURLs: t.InitialAdvertisePeerURLs,
		InitialCluster: t.InitialCluster, InitialClusterToken: t.InitialClusterToken, RevisionBump: RevisionBump, MarkCompacted: true,
	})
	if err != nil {
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
}

// Read reads a snapshot file as of a revision. Its memory grows with the number of logical clusters.
func Read(file, prefix string, revision int64) (*State, error) {
	db, err := bolt.Open(file, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("opening the snapshot: %w", err)
	}
	defer db.Close()
	out := &State{logicalClusters: map[string]struct{}{}}
	clusters := logicalClusters(prefix)
	err = db.View(func(tx *bolt.Tx) error {
		keys := tx.Bucket(schema.Key.Name())
		if keys == nil {
			return errors.New("the snapshot contains no keys of etcd")
		}
		// In the order of revisions.
		return keys.ForEach(func(k, v []byte) error {
			at := mvcc.BytesToRev(k)
			out.Latest = at.Main
			if at.Main > revision {
				return nil
			}
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(v, &kv); err != nil {
				return fmt.Errorf("reading revision %d: %w", at.Main, err)
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
