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

const (
	// opsPerRequest and bytesPerRequest are below what etcd takes by default (128 operations, 1.5 MiB).
	opsPerRequest   = 100
	bytesPerRequest = 1 << 20
	// keysPerPage is how many keys are read at a time, some 2 MiB. etcd counts all that are left with each page.
	keysPerPage = 10_000
	// requestTimeout bounds one request to etcd.
	requestTimeout = 30 * time.Second
)

// Change is what has become of a record. A nil value removes it.
type Change struct {
	Key   Key
	Value []byte
}

// Source is where the records of a shard come from. Stream emits all there is, calls synced, and goes on with changes until
// the context ends or it cannot go on; then it is called anew. It calls from one goroutine at a time.
type Source interface {
	Stream(ctx context.Context, emit func(Change), synced func()) error
}

// Writer keeps the records of one shard in step with its objects. One replica of a shard writes at a time; a second one
// that starts takes over.
type Writer struct {
	options *Options
	client  *clientv3.Client // of Run
	space   space
	shard   string
	source  Source
	// compacted is when old revisions were removed last, revision what etcd was at then.
	compacted time.Time
	revision  int64
}

// NewWriter returns a writer of the records of a shard.
func NewWriter(o *Options, shard string, source Source) *Writer {
	return &Writer{options: o, space: space{o.Prefix}, shard: shard, source: source}
}

// Run writes until the context ends. An etcd that is away is tried again with growing pauses, and logged once. It
// can be called again when it has returned.
func (w *Writer) Run(ctx context.Context) {
	client, err := w.options.Connect()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The shared index is not written")
		return
	}
	defer func() { _ = client.Close() }() // what is not written by now is found to be missing by the next writer
	w.client = client
	fresh := func() wait.Backoff {
		return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 20, Cap: 15 * time.Second}
	}
	pauses, quiet := fresh(), false
	for {
		worked, err := w.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if worked {
			pauses, quiet = fresh(), false
		}
		if !quiet {
			klog.FromContext(ctx).Info("Writing the shared index was interrupted, beginning anew", "reason", err)
		}
		quiet = true
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauses.Step()):
		}
	}
}

// errReplaced ends a session whose right to write is gone: another replica writes, or etcd lost its keys.
var errReplaced = errors.New("another replica writes, or the keys are gone")

// session takes the right to write, writes everything and then changes. worked tells that everything was written.
func (w *Writer) session(ctx context.Context) (worked bool, err error) {
	s := &session{Writer: w, changes: newChanges()}
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	synced, ended := make(chan struct{}), make(chan struct{})
	var streamed error
	go func() {
		defer close(ended)
		streamed = w.source.Stream(ctx, s.changes.add, func() { close(synced) })
	}()
	defer func() {
		cancel()
		<-ended
	}()
	select {
	case <-synced:
	case <-ended:
		return false, fmt.Errorf("reading the shard: %w", streamed)
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if err := s.writeAll(ctx); err != nil {
		return false, err
	}
	check := time.NewTicker(w.options.CheckInterval)
	defer check.Stop()
	for {
		select {
		case <-s.changes.some:
			if err := s.write(ctx, s.changes.take()); err != nil {
				return true, err
			}
		case <-check.C:
			if err := s.commit(ctx); err != nil {
				return true, err
			}
		case <-ended:
			return true, fmt.Errorf("reading the shard: %w", streamed)
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// session is the time in which a writer has the right to write.
type session struct {
	*Writer
	changes *changes
	// right is the revision of the key that gives the right.
	right int64
}

func (s *session) own(path string) string { return s.space.shard(s.shard) + path }

// begin takes the right to write from whoever had it.
func (s *session) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	written, err := s.client.Put(ctx, s.own(writerKey), strconv.FormatUint(rand.Uint64(), 36))
	if err != nil {
		return fmt.Errorf("beginning to write: %w", err)
	}
	s.right = written.Header.Revision
	return nil
}

// commit runs operations if the right to write is still there.
func (s *session) commit(ctx context.Context, ops ...clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	done, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(s.own(writerKey)), "=", s.right)).Then(ops...).Commit()
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if !done.Succeeded {
		return errReplaced
	}
	s.compact(ctx, done.Header.Revision)
	return nil
}

// compact removes what is older than the last call that did, once in a while. Without it etcd would keep every revision
// there ever was. All writers do it: whoever comes second has nothing to do.
func (w *Writer) compact(ctx context.Context, revision int64) {
	if every := w.options.Compaction; every == 0 || time.Since(w.compacted) < every {
		return
	}
	if w.revision > 0 {
		if _, err := w.client.Compact(ctx, w.revision); err != nil {
			klog.FromContext(ctx).V(4).Info("The shared index was not compacted", "reason", err)
		}
	}
	w.compacted, w.revision = time.Now(), revision
}

// writeAll makes what is in etcd what there is, and says that it is complete.
func (s *session) writeAll(ctx context.Context) error {
	wanted := s.changes.take()
	stale := map[string]Change{}
	err := pages(ctx, s.client, s.space.shard(s.shard), 0, func(key string, value []byte) {
		path := key[len(s.space.shard(s.shard)):]
		if path == writerKey || path == completeKey {
			return
		}
		change, ok := wanted[path]
		switch {
		case ok && change.Value != nil && bytes.Equal(change.Value, value):
			delete(wanted, path)
		case !ok:
			k, err := parsePath(path)
			if err != nil {
				return // of another version of this program, which may be back
			}
			stale[path] = Change{Key: k}
		}
	})
	if err != nil {
		return fmt.Errorf("reading what is written: %w", err)
	}
	if err := s.write(ctx, wanted); err != nil {
		return err
	}
	if err := s.write(ctx, stale); err != nil {
		return err
	}
	if s.shard == RootShard {
		if err := s.removeStrangers(ctx); err != nil {
			return err
		}
	}
	return s.commit(ctx, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.own(completeKey)), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(s.own(completeKey), strconv.FormatUint(rand.Uint64(), 36))}, nil))
}

// put writes a value, unless it is there.
func put(key, value string) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", value)}, nil, []clientv3.Op{clientv3.OpPut(key, value)})
}

// write writes changes by path. A record that is as it should be is not written again: most events of an object change
// nothing that matters here.
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
		key := s.own(path)
		var op clientv3.Op
		switch {
		case change.Value != nil:
			op = put(key, string(change.Value))
		default:
			op = clientv3.OpDelete(key)
			if change.Key.Kind == Shards {
				ops = append(ops, s.forget(change.Key.Name))
			}
		}
		ops = append(ops, op)
		if size += len(key) + 2*len(change.Value); len(ops) >= opsPerRequest-1 || size >= bytesPerRequest {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// forget removes all of a shard that is none any more. If it still runs, it finds its right to write gone and writes
// everything anew.
func (s *session) forget(shard string) clientv3.Op {
	if shard == s.shard {
		return clientv3.OpGet(s.own(writerKey)) // its own Shard object may come back any moment: nothing to be done
	}
	return clientv3.OpDelete(s.space.shard(shard), clientv3.WithPrefix())
}

// removeStrangers forgets shards that are none: what they left would stay for ever.
func (s *session) removeStrangers(ctx context.Context) error {
	known := map[string]bool{s.shard: true}
	err := pages(ctx, s.client, s.own(string(Shards)+"/"), 0, func(key string, _ []byte) {
		known[key[len(s.own(string(Shards)+"/")):]] = true
	})
	if err != nil {
		return fmt.Errorf("reading shards: %w", err)
	}
	for next := s.space.all(); ; {
		found, err := get(ctx, s.client, next, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.space.all())), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return fmt.Errorf("reading shards: %w", err)
		}
		if len(found.Kvs) == 0 {
			return nil
		}
		shard, _, ok := s.space.split(string(found.Kvs[0].Key))
		if !ok {
			next = string(found.Kvs[0].Key) + "\x00" // somebody else's
			continue
		}
		if !known[shard] {
			if err := s.commit(ctx, s.forget(shard)); err != nil {
				return err
			}
		}
		next = clientv3.GetPrefixRangeEnd(s.space.shard(shard))
	}
}

func get(ctx context.Context, client *clientv3.Client, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return client.Get(ctx, key, options...)
}

// pages hands on all keys below a prefix as they were at a revision, or, if that is 0, at whatever revision the first page
// had.
func pages(ctx context.Context, client *clientv3.Client, prefix string, revision int64, each func(key string, value []byte)) error {
	for next := prefix; ; {
		page, err := get(ctx, client, next, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(keysPerPage), clientv3.WithRev(revision))
		if err != nil {
			return err
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			each(string(kv.Key), kv.Value)
		}
		if !page.More {
			return nil
		}
		next = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}
