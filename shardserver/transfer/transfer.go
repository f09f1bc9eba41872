package transfer

import (
	"context"
	"errors"
	"path"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"
)

const (
	// opsPerRequest keeps transactions below etcd's default limit of 128 operations.
	opsPerRequest = 100
	// keysPerPage is the page size of keys without values. etcd reads the values of a page even then.
	keysPerPage = 500
	// valuesPerRequest bounds the values of one read, whose sizes are not known before.
	valuesPerRequest = 50
	// bytesPerRequest is the size that reads of values are to have.
	bytesPerRequest = 1 << 20
	// MaxReadKeys and MaxReadBytes bound the entries of one Read. A value that is larger than MaxReadBytes is returned alone.
	MaxReadKeys, MaxReadBytes = 500, 2 << 20
	// parallelWrites bounds the transactions of a Writer or of Purge in flight, and with that the values in memory.
	parallelWrites = 32
)

// ErrFenced is returned if the conditions of the caller do not hold: another shard or replica is responsible for the logical cluster.
var ErrFenced = errors.New("the logical cluster has changed since it was read")

// Config configures a Transfer.
type Config struct {
	Client *clientv3.Client
	// Prefix is the prefix of all keys of the shard, such as "/registry".
	Prefix string
	// Storages returns the storage prefixes that may have keys, "/<group or core>/<resource>[/<customresources or identity>]", those
	// without a definition included: etcdkeys.Scanner.StoragePrefixes.
	Storages func(ctx context.Context) ([]string, error)
	// Scan returns these, and all others that have keys in etcd at the time of the call: etcdkeys.Scanner.ScanStoragePrefixes. Other replicas
	// of the shard store objects of APIs that this one does not know yet.
	Scan func(ctx context.Context) ([]string, error)
	// Transformers encrypt values at rest; nil if the shard does not.
	Transformers value.ResourceTransformers
}

// Transfer accesses the keys of logical clusters in the etcd of a shard. It has no state but that of its Followers; concurrent calls are
// allowed.
type Transfer struct {
	cfg    Config
	prefix string
	now    func() time.Time
	// followedKeys are the keys that all Followers remember.
	followedKeys atomic.Int64
	// written are the bytes of the values that all Writers have sent to etcd, with what it stores of each beside the value.
	written atomic.Int64
}

// entryOverhead is about what etcd stores of an entry and its record, beside keys and values.
const entryOverhead = 256

// Written returns how many bytes were written so far, about.
func (t *Transfer) Written() int64 { return t.written.Load() }

// New returns a Transfer.
func New(cfg Config) *Transfer {
	return &Transfer{cfg: cfg, prefix: path.Join("/", cfg.Prefix), now: time.Now}
}

// Key is a key of a logical cluster, the same on each shard.
type Key struct {
	// Resource is the storage prefix.
	Resource string `json:"resource"`
	// Name is what follows the logical cluster: the name of the object, after its namespace if it has one.
	Name string `json:"name"`
}

// Version is a key as of a revision of the origin.
type Version struct {
	Key
	ModRevision int64 `json:"modRevision"`
}

// Entry is a key with its value.
type Entry struct {
	Version
	// Value is not encrypted.
	Value []byte `json:"value"`
	// Expires is the time at which the key is deleted, by the clock of the shard that read it; zero if it has no lease. It may have
	// passed: a past revision has keys that have expired.
	Expires time.Time `json:"expires,omitzero"`
}

// Difference returns the keys that the destination has to copy, because they are not copied or copied in another version, and those that
// it has to delete.
func Difference(origin []Listed, copied []Version) (changed, gone []Key) {
	versions := make(map[Key]int64, len(copied))
	for _, version := range copied {
		versions[version.Key] = version.ModRevision
	}
	for _, version := range origin {
		if versions[version.Key] != version.ModRevision {
			changed = append(changed, version.Key)
		}
		delete(versions, version.Key)
	}
	for _, version := range copied {
		if _, left := versions[version.Key]; left {
			gone = append(gone, version.Key)
		}
	}
	return changed, gone
}
