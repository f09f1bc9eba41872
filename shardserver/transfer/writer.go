package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// Writer writes what one migration copies to this shard. Concurrent calls must not concern the same keys.
type Writer struct {
	t      *Transfer
	in     Incoming
	fence  []clientv3.Cmp
	leases *leases
}

// NewWriter returns a Writer. Each of its transactions requires the fence, conditions that hold only while no client is served the
// logical cluster and no other replica writes its copy; otherwise calls fail with ErrFenced.
func (t *Transfer) NewWriter(in Incoming, fence []clientv3.Cmp) *Writer {
	return &Writer{t: t, in: in, fence: fence, leases: &leases{client: t.cfg.Client, now: t.now, byEnd: map[time.Time]*sharedLease{}}}
}

// Store stores entries, or replaces them, each with its record and in a revision of its own. They are from Read of the origin,
// whose shard is not trusted: entries that are no keys of the logical cluster, or of storages that this shard cannot have, are
// refused before anything is written.
func (w *Writer) Store(ctx context.Context, entries []Entry) error {
	if err := w.store(ctx, entries); err != nil {
		return fmt.Errorf("storing keys of logical cluster %q: %w", w.in.Cluster, err)
	}
	return nil
}

func (w *Writer) store(ctx context.Context, entries []Entry) error {
	prefix, err := w.t.records(w.in)
	if err != nil {
		return err
	}
	storages, err := w.t.cfg.Storages(ctx)
	if err != nil {
		return fmt.Errorf("finding the storages: %w", err)
	}
	known := make(map[Key]bool, len(entries))
	for _, entry := range entries {
		if err := checkKey(entry.Key); err != nil {
			return err
		}
		if err := checkStorage(entry.Resource, storages); err != nil {
			return err
		}
		if known[entry.Key] {
			return fmt.Errorf("a key of %s is there twice", entry.Resource)
		}
		known[entry.Key] = true
	}
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(parallelWrites)
	for _, entry := range entries {
		writes.Go(func() error { return w.put(ctx, prefix, entry) })
	}
	return writes.Wait()
}

// put stores one entry and its record, which expire together: an expired key is copied again if the origin still has it.
func (w *Writer) put(ctx context.Context, prefix string, entry Entry) error {
	encoded, err := json.Marshal(record{Version: entry.Version, Expires: entry.Expires})
	if err != nil {
		return fmt.Errorf("encoding a record of %s: %w", entry.Resource, err)
	}
	key := w.t.clusterKey(w.in.Cluster, entry.Key)
	encrypted, err := w.t.encrypt(ctx, entry.Resource, key, entry.Value)
	if err != nil {
		return err
	}
	var options []clientv3.OpOption
	if !entry.Expires.IsZero() {
		lease, err := w.leases.at(ctx, entry.Expires)
		if err != nil {
			return err
		}
		options = append(options, clientv3.WithLease(lease))
	}
	w.t.written.Add(int64(2*len(key) + len(encrypted) + len(encoded) + entryOverhead))
	return w.commit(ctx, entry.Resource,
		clientv3.OpPut(key, string(encrypted), options...), clientv3.OpPut(recordOf(prefix, entry.Key), string(encoded), options...))
}

// Delete deletes copied keys, with their records, each in a revision of its own. The origin may name others, which stay.
func (w *Writer) Delete(ctx context.Context, keys []Key) error {
	prefix, err := w.t.records(w.in)
	if err != nil {
		return fmt.Errorf("deleting copied keys of logical cluster %q: %w", w.in.Cluster, err)
	}
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(parallelWrites)
	for _, key := range keys {
		writes.Go(func() error {
			if err := checkKey(key); err != nil {
				return err
			}
			record := recordOf(prefix, key)
			return w.commit(ctx, key.Resource, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(record), ">", 0)},
				[]clientv3.Op{clientv3.OpDelete(w.t.clusterKey(w.in.Cluster, key)), clientv3.OpDelete(record)}, nil))
		})
	}
	if err := writes.Wait(); err != nil {
		return fmt.Errorf("deleting copied keys of logical cluster %q: %w", w.in.Cluster, err)
	}
	return nil
}

// DeleteAll deletes all copied keys, with their records, and nothing else.
func (w *Writer) DeleteAll(ctx context.Context) error {
	copied, err := w.t.Copied(ctx, w.in)
	if err != nil {
		return err
	}
	for page := range slices.Chunk(copied, keysPerPage) {
		keys := make([]Key, len(page))
		for i, version := range page {
			keys[i] = version.Key
		}
		if err := w.Delete(ctx, keys); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) commit(ctx context.Context, resource string, ops ...clientv3.Op) error {
	response, err := w.t.cfg.Client.Txn(ctx).If(w.fence...).Then(ops...).Commit()
	if err != nil {
		return fmt.Errorf("writing a key of %s: %w", resource, err)
	}
	if !response.Succeeded {
		return ErrFenced
	}
	return nil
}
