package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/internal/workspacerestore"
)

const (
	pathAnnotation   = "kcp.io/path"
	workspaceStorage = "/tenancy.kcp.io/workspaces/"
	// encryptedPrefix is what values begin with that a shard has encrypted.
	encryptedPrefix = "k8s:enc:"
	// maxWorkspaceKeys bounds the memory for the keys of a workspace.
	maxWorkspaceKeys = 100_000
)

// Workspace is a workspace of a snapshot file, without the objects that expire, which are Events.
type Workspace struct {
	LogicalCluster string
	// Parent is the logical cluster of the Workspace, and ParentUID the UID of its LogicalCluster.
	Parent, ParentUID string
	// Key is the key of the Workspace.
	Key string
	// Bytes is the size of all objects. Expiring is the number of those that are left out.
	Bytes    int64
	Expiring int
	// Owner is the owner of the keys of the shard (package etcdowner), or "".
	Owner string

	file string
	// revisions are the latest revisions of the keys, as the database has them.
	revisions map[string][]byte
}

// Keys returns the keys of the logical cluster, sorted.
func (w *Workspace) Keys() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(w.revisions)), func(key string) bool { return key == w.Key })
}

// Values passes the values of keys to a function, in their order.
func (w *Workspace) Values(keys []string, visit func(key string, value []byte) error) error {
	return view(w.file, func(bucket *bolt.Bucket) error {
		for _, key := range keys {
			kv := &mvccpb.KeyValue{}
			if err := proto.Unmarshal(bucket.Get(w.revisions[key]), kv); err != nil {
				return fmt.Errorf("reading %s: %w", key, err)
			}
			if err := visit(key, kv.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

// FindWorkspace finds a workspace in a snapshot file that was checked, as of its last revision; nil if it has none of that path. The workspace
// can be read as long as the file exists.
func FindWorkspace(file, prefix, path string) (*Workspace, error) {
	parentPath, name, ok := cutLast(path, ":")
	if !ok || name == "" {
		return nil, fmt.Errorf("got the path %q, want that of a workspace below root, such as root:acme:team", path)
	}
	found, err := findClusters(file, prefix, path, parentPath)
	if err != nil {
		return nil, err
	}
	switch clusters, parents := found[path], found[parentPath]; {
	case len(clusters) == 0 && len(found[encryptedPrefix]) > 0:
		return nil, fmt.Errorf("the snapshot has %d LogicalClusters that are encrypted at rest, and their paths cannot be read: a workspace can be restored only where the encryption leaves out logicalclusters.core.kcp.io", len(found[encryptedPrefix]))
	case len(clusters) == 0:
		return nil, nil
	case len(clusters) > 1:
		return nil, fmt.Errorf("the snapshot has %d logical clusters with the path %s: one of them was being deleted. Use an earlier or a later backup", len(clusters), path)
	case len(parents) != 1:
		return nil, fmt.Errorf("the parent of %s is not on the shard that has the workspace: a workspace can be restored only if its parent is on the same shard", path)
	default:
		out := &Workspace{file: file, revisions: map[string][]byte{}}
		for out.LogicalCluster = range clusters {
		}
		for out.Parent, out.ParentUID = range parents {
		}
		return out, out.index(prefix, name)
	}
}

func cutLast(s, separator string) (before, after string, found bool) {
	at := strings.LastIndex(s, separator)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(separator):], true
}

// findClusters returns the names and UIDs of the logical clusters of some paths, and those that are encrypted.
func findClusters(file, prefix string, paths ...string) (map[string]map[string]string, error) {
	out := map[string]map[string]string{encryptedPrefix: {}}
	for _, path := range paths {
		out[path] = map[string]string{}
	}
	clusters := logicalClusters(prefix)
	return out, each(file, func(_ []byte, kv *mvccpb.KeyValue, deleted bool) error {
		name, ok := logicalClusterOf(string(kv.Key), clusters)
		if !ok {
			return nil
		}
		for _, names := range out {
			delete(names, name)
		}
		if deleted {
			return nil
		}
		if bytes.HasPrefix(kv.Value, []byte(encryptedPrefix)) {
			out[encryptedPrefix][name] = ""
			return nil
		}
		var cluster struct {
			Metadata struct {
				UID         string            `json:"uid"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if json.Unmarshal(kv.Value, &cluster) != nil {
			return nil // the shard could not read it either
		}
		if names, wanted := out[cluster.Metadata.Annotations[pathAnnotation]]; wanted {
			names[name] = cluster.Metadata.UID
		}
		return nil
	})
}

// index finds the keys of the workspace.
func (w *Workspace) index(prefix, name string) error {
	type latest struct {
		revision []byte
		size     int
		expires  bool
	}
	found := map[string]latest{}
	owner := reservedkeys.Owner(prefix)
	err := each(w.file, func(revision []byte, kv *mvccpb.KeyValue, deleted bool) error {
		key := string(kv.Key)
		if key == owner {
			if w.Owner = ""; !deleted {
				w.Owner = string(kv.Value)
			}
			return nil
		}
		storage, cluster, object, ok := workspacerestore.SplitKey(prefix, key)
		isWorkspace := cluster == w.Parent && object == name && strings.HasPrefix(storage, workspaceStorage)
		if !ok || cluster != w.LogicalCluster && !isWorkspace {
			return nil
		}
		if delete(found, key); deleted {
			return nil
		}
		if found[key] = (latest{bytes.Clone(revision), len(kv.Value), kv.Lease != 0}); len(found) > maxWorkspaceKeys {
			return fmt.Errorf("the workspace has more than %d objects, which are not restored one by one", maxWorkspaceKeys)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for key, at := range found {
		if at.expires {
			w.Expiring++
			continue
		}
		w.revisions[key] = at.revision
		if _, cluster, _, _ := workspacerestore.SplitKey(prefix, key); cluster == w.Parent {
			if w.Key != "" {
				return fmt.Errorf("the snapshot has two Workspaces of this name, %s and %s: delete the one that the shard does not serve, and make another backup", min(w.Key, key), max(w.Key, key))
			}
			w.Key = key
			continue
		}
		w.Bytes += int64(len(key) + at.size)
	}
	if w.Key == "" {
		return fmt.Errorf("the snapshot has logical cluster %s, and not its Workspace: one of them was being created or deleted. Use an earlier or a later backup", w.LogicalCluster)
	}
	return nil
}

// each visits all revisions of all keys, in their order. What it passes is valid until the function returns.
func each(file string, visit func(revision []byte, kv *mvccpb.KeyValue, deleted bool) error) error {
	return view(file, func(bucket *bolt.Bucket) error {
		return bucket.ForEach(func(k, v []byte) error {
			kv := &mvccpb.KeyValue{}
			if err := proto.Unmarshal(v, kv); err != nil {
				return fmt.Errorf("reading revision %d: %w", mvcc.BytesToRev(k).Main, err)
			}
			return visit(k, kv, mvcc.IsTombstone(k))
		})
	})
}

func view(file string, read func(*bolt.Bucket) error) error {
	db, err := bolt.Open(file, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("opening the snapshot: %w", err)
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		bucket := tx.Bucket(schema.Key.Name())
		if bucket == nil {
			return errors.New("the snapshot contains no keys of etcd")
		}
		return read(bucket)
	})
}
