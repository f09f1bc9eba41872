package sharedindex

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Reader takes what a follower reads. Its methods are called from one goroutine.
type Reader interface {
	// Begin starts the list of a shard's records, Record hands on each, and End says whether these are all: if not, the
	// absence of a record means nothing.
	Begin(shard string)
	Record(key Key, value []byte)
	End(shard string, complete bool)
	// Changed says what has become of one record.
	Changed(shard string, change Change)
	// Incomplete says that the records of a shard are not all there any more.
	Incomplete(shard string)
}

// Follower hands the records of all shards to a reader and keeps it in step with them.
type Follower struct {
	options *Options
	client  *clientv3.Client // of Run
	space   space
	reader  Reader

	mu      sync.Mutex
	read    bool
	failure error

	// revision is that of the last event; 0 when everything has to be read. marks are the values of the keys that say that
	// a shard has written everything, by shard: as long as they stand, etcd is what it was.
	revision int64
	marks    map[string]string
}

// NewFollower returns a follower of the records below a prefix.
func NewFollower(o *Options, reader Reader) *Follower {
	return &Follower{options: o, space: space{o.Prefix}, reader: reader, failure: errNotRead}
}

// Ready returns nil once everything was read, even if etcd has gone away since; else why it was not.
func (f *Follower) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read {
		return nil
	}
	return fmt.Errorf("the shared index was not read yet (last failure: %w)", f.failure)
}

// Current returns nil while etcd answers; else why the follower stands still.
func (f *Follower) Current() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

// errNotRead is the failure of a follower that has not begun.
var errNotRead = errors.New("none")

// Run follows until the context ends. An etcd that is away is tried again with growing pauses, and logged once; what was
// read stays. It fails at once if it could never connect, because a certificate cannot be read.
func (f *Follower) Run(ctx context.Context) error {
	var err error
	if f.client, err = f.options.Connect(); err != nil {
		return err
	}
	defer func() { _ = f.client.Close() }() // nothing is lost with it
	fresh := func() wait.Backoff {
		return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 20, Cap: 5 * time.Second}
	}
	pauses := fresh()
	for {
		worked, err := f.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if worked {
			pauses = fresh()
		}
		if current := f.Current(); current == nil || errors.Is(current, errNotRead) {
			klog.FromContext(ctx).Error(err, "Cannot follow the shared index, what is known stays; trying again")
		}
		f.set(false, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pauses.Step()):
		}
	}
}

func (f *Follower) set(read bool, failure error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = f.read || read
	f.failure = failure
}

// once reads everything if need be, and follows changes until that fails.
func (f *Follower) once(ctx context.Context) (worked bool, err error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	if err := f.probe(ctx); err != nil {
		return false, err
	}
	if f.revision == 0 {
		if err := f.list(ctx); err != nil {
			return false, err
		}
	}
	f.set(true, nil)
	events := f.client.Watch(ctx, f.space.all(), clientv3.WithPrefix(), clientv3.WithRev(f.revision+1), clientv3.WithProgressNotify())
	check := time.NewTicker(f.options.CheckInterval)
	defer check.Stop()
	for {
		select {
		case response, open := <-events:
			if !open {
				return true, errors.New("the watch ended")
			}
			if err := response.Err(); err != nil {
				if response.CompactRevision > 0 { // what happened since is not known any more
					f.revision = 0
				}
				return true, fmt.Errorf("watching: %w", err)
			}
			for _, event := range response.Events {
				if err := f.apply(ctx, event); err != nil {
					f.revision = 0
					return true, err
				}
			}
			f.revision = response.Header.Revision
		case <-check.C:
			// The watch itself is silent while it tries to connect again.
			if err := f.probe(ctx); err != nil {
				return true, err
			}
		}
	}
}

// probe asks etcd for a sign of life. One that is another than before, or that was set back, has to be read anew.
func (f *Follower) probe(ctx context.Context) error {
	shards := slices.Sorted(maps.Keys(f.marks))
	for first := true; first || len(shards) > 0; first = false {
		batch := shards[:min(len(shards), opsPerRequest)]
		shards = shards[len(batch):]
		if err := f.probeMarks(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (f *Follower) probeMarks(ctx context.Context, shards []string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ops := []clientv3.Op{clientv3.OpGet(f.space.all(), clientv3.WithCountOnly())} // there is one to ask for in any case
	for _, shard := range shards {
		ops = append(ops, clientv3.OpGet(f.space.shard(shard)+completeKey))
	}
	answer, err := f.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	known := answer.Header.Revision >= f.revision
	for i, shard := range shards {
		found := answer.Responses[i+1].GetResponseRange().Kvs
		known = known && len(found) == 1 && string(found[0].Value) == f.marks[shard]
	}
	if !known {
		f.revision, f.marks = 0, nil
		return errors.New("etcd does not have what it had")
	}
	return nil
}

// list hands everything on, as it was at one moment.
func (f *Follower) list(ctx context.Context) error {
	at, err := get(ctx, f.client, f.space.all(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	f.marks = map[string]string{}
	if err := f.listBelow(ctx, f.space.all(), at.Header.Revision); err != nil {
		return err
	}
	f.revision = at.Header.Revision
	return nil
}

// listBelow hands on all records below a prefix, as they were at a revision.
func (f *Follower) listBelow(ctx context.Context, prefix string, revision int64) error {
	current, complete := "", false
	end := func() {
		if current != "" {
			f.reader.End(current, complete)
		}
	}
	err := pages(ctx, f.client, prefix, revision, func(key string, value []byte) {
		shard, path, ok := f.space.split(key)
		if !ok {
			return
		}
		if shard != current {
			end()
			f.reader.Begin(shard)
			current, complete = shard, false
		}
		switch k, err := parsePath(path); {
		case path == completeKey:
			complete = true
			f.marks[shard] = string(value)
		case err == nil:
			f.reader.Record(k, value)
		}
	})
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	end()
	return nil
}

// apply hands one event on. A shard that says it has written everything is read again: what it does not have any more may
// have been removed with nobody looking.
func (f *Follower) apply(ctx context.Context, event *clientv3.Event) error {
	shard, path, ok := f.space.split(string(event.Kv.Key))
	switch {
	case !ok:
		return nil
	case path == completeKey && event.Type == clientv3.EventTypePut:
		return f.listBelow(ctx, f.space.shard(shard), event.Kv.ModRevision)
	case path == completeKey:
		delete(f.marks, shard)
		f.reader.Incomplete(shard)
		return nil
	}
	k, err := parsePath(path)
	if err != nil {
		return nil // no record, or one of a later version
	}
	change := Change{Key: k}
	if event.Type == clientv3.EventTypePut {
		change.Value = event.Kv.Value
	}
	f.reader.Changed(shard, change)
	return nil
}
