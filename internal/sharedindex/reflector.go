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

// EventHandler receives the records of all shards. Its methods are called from one goroutine.
type EventHandler interface {
	// OnListStart starts the list of a shard's records, and OnListRecord is called for each of them. OnListEnd reports whether the list
	// is complete: if not, a missing record is no proof of a deletion.
	OnListStart(shard string)
	OnListRecord(key Key, value []byte)
	OnListEnd(shard string, complete bool)
	// OnChange is called when a record changes after the list.
	OnChange(shard string, change Change)
	// OnIncomplete is called when the records of a shard become incomplete.
	OnIncomplete(shard string)
}

// Reflector lists and watches the records of all shards for an event handler.
type Reflector struct {
	options *Options
	client  *clientv3.Client // set by Run
	layout  keyLayout
	handler EventHandler

	mu      sync.Mutex
	synced  bool
	failure error

	// revision is the revision of the last event; 0 if the records must be listed. markers contains the value of completeKey by shard:
	// while these do not change, etcd has not lost data.
	revision int64
	markers  map[string]string
}

// NewReflector returns a reflector that Run starts.
func NewReflector(o *Options, handler EventHandler) *Reflector {
	return &Reflector{options: o, layout: keyLayout{o.Prefix}, handler: handler, failure: errNotStarted}
}

// HasSynced returns nil once all records were listed, even if etcd is down now; otherwise the reason.
func (r *Reflector) HasSynced() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.synced {
		return nil
	}
	return fmt.Errorf("the shared index is not synced (last failure: %w)", r.failure)
}

// Connected returns nil while etcd responds, otherwise the last failure.
func (r *Reflector) Connected() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// errNotStarted is the failure before Run.
var errNotStarted = errors.New("none")

// Run lists and watches until the context ends. While etcd is down it retries with exponential backoff and logs the
// outage once. It returns an error only if a certificate cannot be read.
func (r *Reflector) Run(ctx context.Context) error {
	var err error
	if r.client, err = r.options.Connect(); err != nil {
		return err
	}
	defer func() { _ = r.client.Close() }() // an error of closing has no effect
	retry := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 20, Cap: 5 * time.Second}
	backoff := retry
	_ = wait.DelayFunc(func() time.Duration { return backoff.Step() }).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		progress, err := r.listAndWatch(ctx)
		if ctx.Err() != nil {
			return true, nil
		}
		if progress {
			backoff = retry
		}
		if failure := r.Connected(); failure == nil || errors.Is(failure, errNotStarted) {
			klog.FromContext(ctx).Error(err, "Failed to watch the shared index, will retry; the last known state stays in use")
		}
		r.setState(false, err)
		return false, nil
	})
	return nil
}

func (r *Reflector) setState(synced bool, failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = r.synced || synced
	r.failure = failure
}

// listAndWatch lists the records, unless it can continue at the last revision, and watches them until an error.
// progress reports whether the watch was opened.
func (r *Reflector) listAndWatch(ctx context.Context) (progress bool, err error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	if err := r.check(ctx); err != nil {
		return false, err
	}
	if r.revision == 0 {
		if err := r.list(ctx); err != nil {
			return false, err
		}
	}
	r.setState(true, nil)
	events := r.client.Watch(ctx, r.layout.rootPrefix(), clientv3.WithPrefix(), clientv3.WithRev(r.revision+1), clientv3.WithProgressNotify())
	ticker := time.NewTicker(r.options.CheckInterval)
	defer ticker.Stop()
	for {
		select {
		case response, open := <-events:
			if !open {
				return true, errors.New("the watch ended")
			}
			if err := r.handle(ctx, response); err != nil {
				return true, err
			}
		case <-ticker.C:
			// The watch itself reports no error while it reconnects.
			if err := r.check(ctx); err != nil {
				return true, err
			}
		}
	}
}

// check verifies that etcd responds and has not lost data. If it was replaced or restored, the records must be listed
// again.
func (r *Reflector) check(ctx context.Context) error {
	shards := slices.Sorted(maps.Keys(r.markers))
	if len(shards) == 0 {
		return r.checkMarkers(ctx, nil)
	}
	for batch := range slices.Chunk(shards, maxOpsPerRequest) {
		if err := r.checkMarkers(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reflector) checkMarkers(ctx context.Context, shards []string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ops := []clientv3.Op{clientv3.OpGet(r.layout.rootPrefix(), clientv3.WithCountOnly())} // returns the revision
	for _, shard := range shards {
		ops = append(ops, clientv3.OpGet(r.layout.shardPrefix(shard)+completeKey))
	}
	response, err := r.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return fmt.Errorf("checking etcd: %w", err)
	}
	unchanged := response.Header.Revision >= r.revision
	for i, shard := range shards {
		found := response.Responses[i+1].GetResponseRange().Kvs
		unchanged = unchanged && len(found) == 1 && string(found[0].Value) == r.markers[shard]
	}
	if !unchanged {
		r.revision, r.markers = 0, nil
		return errors.New("etcd has lost data")
	}
	return nil
}

// list lists all records as of one revision.
func (r *Reflector) list(ctx context.Context) error {
	response, err := get(ctx, r.client, r.layout.rootPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	r.markers = map[string]string{}
	if err := r.listPrefix(ctx, r.layout.rootPrefix(), response.Header.Revision); err != nil {
		return err
	}
	r.revision = response.Header.Revision
	return nil
}

// listPrefix lists the records of all shards below a prefix as of a revision.
func (r *Reflector) listPrefix(ctx context.Context, prefix string, revision int64) error {
	current, complete := "", false
	end := func() {
		if current != "" {
			r.handler.OnListEnd(current, complete)
		}
	}
	err := list(ctx, r.client, prefix, revision, func(key string, value []byte) {
		shard, path, ok := r.layout.split(key)
		if !ok {
			return
		}
		if shard != current {
			end()
			r.handler.OnListStart(shard)
			current, complete = shard, false
		}
		switch k, err := parsePath(path); {
		case path == completeKey:
			complete = true
			r.markers[shard] = string(value)
		case err == nil:
			r.handler.OnListRecord(k, value)
		}
	})
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	end()
	return nil
}

// handle applies the events of a watch response.
func (r *Reflector) handle(ctx context.Context, response clientv3.WatchResponse) error {
	if err := response.Err(); err != nil {
		if response.CompactRevision > 0 { // events since the last revision are lost
			r.revision = 0
		}
		return fmt.Errorf("watching: %w", err)
	}
	for _, event := range response.Events {
		if err := r.apply(ctx, event); err != nil {
			r.revision = 0
			return err
		}
	}
	r.revision = response.Header.Revision
	return nil
}

// apply calls the handler for an event. A shard that marks its records as complete is listed again: records may have
// been removed while it did not write.
func (r *Reflector) apply(ctx context.Context, event *clientv3.Event) error {
	shard, path, ok := r.layout.split(string(event.Kv.Key))
	switch {
	case !ok:
		return nil
	case path == completeKey && event.Type == clientv3.EventTypePut:
		return r.listPrefix(ctx, r.layout.shardPrefix(shard), event.Kv.ModRevision)
	case path == completeKey:
		delete(r.markers, shard)
		r.handler.OnIncomplete(shard)
		return nil
	}
	k, err := parsePath(path)
	if err != nil {
		return nil // not a record, or a record of a later version
	}
	change := Change{Key: k}
	if event.Type == clientv3.EventTypePut {
		change.Value = event.Kv.Value
	}
	r.handler.OnChange(shard, change)
	return nil
}
