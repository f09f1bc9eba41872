package sharedindex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Change is the new value of a record; nil deletes it.
type Change struct {
	Key   Key
	Value []byte
}

// Source produces the records of a shard. ListAndWatch emits all records, calls synced, and emits changes until the
// context ends or an error occurs; then it is called again. It calls from one goroutine at a time.
type Source interface {
	ListAndWatch(ctx context.Context, emit func(Change), synced func()) error
}

// Writer writes the records of one shard. Only one replica of a shard writes at a time: the one that started last.
type Writer struct {
	options *Options
	client  *clientv3.Client // set by Run
	layout  keyLayout
	shard   string
	source  Source
	// compacted is the time of the last compaction, revision the revision of etcd at that time.
	compacted time.Time
	revision  int64
}

// NewWriter returns a writer of the records of a shard.
func NewWriter(o *Options, shard string, source Source) *Writer {
	return &Writer{options: o, layout: keyLayout{o.Prefix}, shard: shard, source: source}
}

// Run writes until the context ends. While etcd is down it retries with exponential backoff and logs the outage once.
// It may be called again after it has returned.
func (w *Writer) Run(ctx context.Context) {
	client, err := w.options.Connect()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to write the shared index")
		return
	}
	defer func() { _ = client.Close() }() // the next writer writes pending changes
	w.client = client
	retry := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 20, Cap: 15 * time.Second}
	backoff, logged := retry, false
	_ = wait.DelayFunc(func() time.Duration { return backoff.Step() }).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		progress, err := w.runSession(ctx)
		if ctx.Err() != nil {
			return true, nil
		}
		if progress {
			backoff, logged = retry, false
		}
		if !logged {
			klog.FromContext(ctx).Info("Writing the shared index was interrupted, retrying", "err", err)
		}
		logged = true
		return false, nil
	})
}

// errReplaced ends a session that another replica has taken over, or whose keys etcd has lost.
var errReplaced = errors.New("another replica writes, or etcd has lost the keys")

// runSession replaces another writer, writes all records and then changes. progress reports whether all
// records were written.
func (w *Writer) runSession(ctx context.Context) (progress bool, err error) {
	s := &session{Writer: w, queue: newChangeQueue()}
	if err := s.acquire(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	synced, ended := make(chan struct{}), make(chan struct{})
	var sourceErr error
	go func() {
		defer close(ended)
		sourceErr = w.source.ListAndWatch(ctx, s.queue.add, func() { close(synced) })
	}()
	defer func() {
		cancel()
		<-ended
	}()
	select {
	case <-synced:
	case <-ended:
		return false, fmt.Errorf("reading the shard: %w", sourceErr)
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if err := s.replaceAll(ctx); err != nil {
		return false, err
	}
	ticker := time.NewTicker(w.options.CheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.queue.ready:
			if err := s.write(ctx, s.queue.drain()); err != nil {
				return true, err
			}
		case <-ticker.C:
			if err := s.commit(ctx); err != nil {
				return true, err
			}
		case <-ended:
			return true, fmt.Errorf("reading the shard: %w", sourceErr)
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// session is the period in which this replica writes.
type session struct {
	*Writer
	queue *changeQueue
	// term is the revision at which the session wrote writerKey.
	term int64
}

// key returns the key of a path of the shard.
func (s *session) key(path string) string { return s.layout.shardPrefix(s.shard) + path }

// acquire ends the session of any other writer of the shard.
func (s *session) acquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := s.client.Put(ctx, s.key(writerKey), strconv.FormatUint(rand.Uint64(), 36))
	if err != nil {
		return fmt.Errorf("acquiring the records of the shard: %w", err)
	}
	s.term = response.Header.Revision
	return nil
}

// commit executes operations unless another writer has acquired the records.
func (s *session) commit(ctx context.Context, ops ...clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(s.key(writerKey)), "=", s.term)).Then(ops...).Commit()
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if !response.Succeeded {
		return errReplaced
	}
	s.compact(ctx, response.Header.Revision)
	return nil
}

// compact removes, once per interval, the revisions before the previous compaction. All writers do so; etcd ignores
// repeated requests.
func (w *Writer) compact(ctx context.Context, revision int64) {
	if interval := w.options.Compaction; interval == 0 || time.Since(w.compacted) < interval {
		return
	}
	if w.revision > 0 {
		if _, err := w.client.Compact(ctx, w.revision); err != nil {
			klog.FromContext(ctx).V(4).Info("The shared index was not compacted", "err", err)
		}
	}
	w.compacted, w.revision = time.Now(), revision
}

// replaceAll makes the records in etcd equal to those of the source, and marks them as complete.
func (s *session) replaceAll(ctx context.Context) error {
	desired := s.queue.drain()
	stale := map[string]Change{}
	err := list(ctx, s.client, s.layout.shardPrefix(s.shard), 0, func(key string, value []byte) {
		path := key[len(s.layout.shardPrefix(s.shard)):]
		if path == writerKey || path == completeKey {
			return
		}
		change, ok := desired[path]
		switch {
		case ok && change.Value != nil && bytes.Equal(change.Value, value):
			delete(desired, path)
		case !ok:
			k, err := parsePath(path)
			if err != nil {
				return // written by another version, which may be started again
			}
			stale[path] = Change{Key: k}
		}
	})
	if err != nil {
		return fmt.Errorf("listing the records of the shard: %w", err)
	}
	if err := s.write(ctx, desired); err != nil {
		return err
	}
	if err := s.write(ctx, stale); err != nil {
		return err
	}
	if s.shard == RootShard {
		if err := s.pruneShards(ctx); err != nil {
			return err
		}
	}
	return s.commit(ctx, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.key(completeKey)), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(s.key(completeKey), strconv.FormatUint(rand.Uint64(), 36))}, nil))
}

// putIfChanged writes a value unless the key has it.
func putIfChanged(key, value string) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", value)}, nil, []clientv3.Op{clientv3.OpPut(key, value)})
}

// write writes changes by path. Most events of an object do not change its record, which is then not written.
func (s *session) write(ctx context.Context, changes map[string]Change) error {
	var ops []clientv3.Op
	size := 0
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		err := s.commit(ctx, ops...)
		ops, size = ops[:0], 0
		return err
	}
	for path, change := range changes {
		key := s.key(path)
		switch {
		case change.Value != nil:
			ops = append(ops, putIfChanged(key, string(change.Value)))
		case change.Key.Kind == Shards:
			ops = append(ops, s.deleteShard(change.Key.Name), clientv3.OpDelete(key))
		default:
			ops = append(ops, clientv3.OpDelete(key))
		}
		if size += len(key) + 2*len(change.Value); len(ops) >= maxOpsPerRequest-1 || size >= maxBytesPerRequest {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// deleteShard deletes all records of a shard that was removed. If it still runs, its session ends and it writes all
// records again.
func (s *session) deleteShard(shard string) clientv3.Op {
	if shard == s.shard {
		return clientv3.OpGet(s.key(writerKey)) // no change: the shard registers its own Shard object again
	}
	return clientv3.OpDelete(s.layout.shardPrefix(shard), clientv3.WithPrefix())
}

// pruneShards deletes the records of shards that do not exist.
func (s *session) pruneShards(ctx context.Context) error {
	existing := map[string]bool{s.shard: true}
	prefix := s.key(string(Shards) + "/")
	if err := list(ctx, s.client, prefix, 0, func(key string, _ []byte) { existing[key[len(prefix):]] = true }); err != nil {
		return fmt.Errorf("listing shards: %w", err)
	}
	for next := s.layout.rootPrefix(); ; {
		found, err := get(ctx, s.client, next, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.layout.rootPrefix())), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return fmt.Errorf("listing shards: %w", err)
		}
		if len(found.Kvs) == 0 {
			return nil
		}
		shard, _, ok := s.layout.split(string(found.Kvs[0].Key))
		if !ok {
			next = string(found.Kvs[0].Key) + "\x00" // no key of the index
			continue
		}
		if !existing[shard] {
			if err := s.commit(ctx, s.deleteShard(shard)); err != nil {
				return err
			}
		}
		next = clientv3.GetPrefixRangeEnd(s.layout.shardPrefix(shard))
	}
}
