package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// segment stands in the keys of copies in the place of a group, which no API group can be called.
	segment = "~elsewhere"
	// knownKey says in the place of an object that all objects of the resource are known.
	knownKey = "known"
	// diskInterval is how long changes wait to be written together.
	diskInterval = time.Second
	// diskBatch and diskBytes keep transactions below etcd's default limits of 128 operations and 1.5 MiB. An object that is
	// larger than diskBytes is written alone.
	diskBatch = 100
	diskBytes = 1 << 20
	// diskPage is how many copies one request reads.
	diskPage = 500
)

// Disk is where the mirror keeps its copy: "<prefix>/~elsewhere/<group>/<resource>/<shard>/<cluster>/<namespace or ->/<name>".
type Disk struct {
	Etcd *clientv3.Client
	// Prefix is that of all keys of the shard, such as "/registry".
	Prefix string
}

// diskKey is an object on the disk. With the zero client.Key it is the mark that a resource is known.
type diskKey struct {
	resource schema.GroupResource
	client.Key
}

// copied is what stands on the disk.
type copied struct {
	// CacheVersion is the version of the entry.
	CacheVersion string `json:"cacheVersion,omitempty"`
	// Object is as Encode has it.
	Object json.RawMessage `json:"object,omitempty"`
}

func (d *Disk) root() string { return path.Join("/", d.Prefix, segment) + "/" }

func (d *Disk) key(of diskKey) string {
	resource := d.root() + of.resource.Group + "/" + of.resource.Resource + "/"
	if of.Key == (client.Key{}) {
		return resource + knownKey
	}
	namespace := of.Namespace
	if namespace == "" {
		namespace = "-"
	}
	return resource + strings.Join([]string{of.Shard, of.Cluster.String(), namespace, of.Name}, "/")
}

// parse is the reverse of key.
func (d *Disk) parse(key string) (diskKey, error) {
	parts := strings.SplitN(strings.TrimPrefix(key, d.root()), "/", 6)
	if len(parts) == 3 && parts[2] == knownKey {
		return diskKey{resource: schema.GroupResource{Group: parts[0], Resource: parts[1]}}, nil
	}
	if len(parts) != 6 {
		return diskKey{}, fmt.Errorf("%q is no key of an object of another shard", key)
	}
	cluster, err := logicalcluster.ParseName(parts[3])
	if err != nil {
		return diskKey{}, fmt.Errorf("%q: %w", key, err)
	}
	namespace := parts[4]
	if namespace == "-" {
		namespace = ""
	}
	return diskKey{
		resource: schema.GroupResource{Group: parts[0], Resource: parts[1]},
		Key:      client.Key{Shard: parts[2], Cluster: cluster, Namespace: namespace, Name: parts[5]},
	}, nil
}

// read calls a function with everything on the disk.
func (d *Disk) read(ctx context.Context, each func(diskKey, copied)) error {
	from, end := d.root(), clientv3.GetPrefixRangeEnd(d.root())
	for {
		page, err := d.Etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(diskPage))
		if err != nil {
			return fmt.Errorf("reading what is known of other shards: %w", err)
		}
		for _, kv := range page.Kvs {
			key, err := d.parse(string(kv.Key))
			if err != nil {
				return err
			}
			var value copied
			if err := json.Unmarshal(kv.Value, &value); err != nil {
				return fmt.Errorf("decoding %s: %w", kv.Key, err)
			}
			each(key, value)
			from = string(kv.Key) + "\x00"
		}
		if !page.More {
			return nil
		}
	}
}

// Load takes over what is on the disk. It must be called before Run.
func (m *Mirror) Load(ctx context.Context) error {
	if m.cfg.Disk == nil {
		return nil
	}
	return m.cfg.Disk.read(ctx, func(key diskKey, value copied) {
		t := m.tables[key.resource]
		if t == nil || !kept(key.resource) {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if key.Key == (client.Key{}) {
			t.unknown = nil
			return
		}
		obj, err := decode(t.resource, value.Object)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Reading the copy of an object of another shard failed", "resource", key.resource, "object", key.Key)
			return
		}
		t.put(key.Shard, value.CacheVersion, obj)
		if e := t.find(key.Key); e != nil {
			e.unseen = true
			t.unseen++
		}
	})
}

// kept tells whether there is a copy of a resource. What shards say of themselves, and to each other about one logical
// cluster, is old within seconds: a start without the cache neither needs it nor could answer it.
func kept(resource schema.GroupResource) bool {
	switch resource {
	case shardReports, logicalClusterRequests, logicalClusterReports:
		return false
	}
	return true
}

// touch has the copy of an object written, if it has one and this replica writes them.
func (m *Mirror) touch(resource schema.GroupResource, key client.Key) {
	if kept(resource) {
		m.mark(diskKey{resource, key})
	}
}

// mark has a copy brought up to date, if this replica writes them.
func (m *Mirror) mark(of diskKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirty != nil {
		m.dirty[of] = struct{}{}
	}
}

// Persist keeps the copy on the disk as the mirror is, until the context ends. One replica of a shard does so at a time.
func (m *Mirror) Persist(ctx context.Context) {
	if m.cfg.Disk == nil {
		return
	}
	select {
	case <-m.listed: // before that, what the disk has is all that is known
	case <-ctx.Done():
		return
	}
	m.mu.Lock()
	m.dirty = map[diskKey]struct{}{}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.dirty = nil
	}()
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for compared := false; ; {
		err := m.compare(ctx, &compared)
		if err == nil {
			err = m.flush(ctx)
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Keeping a copy of what other shards have failed, will retry")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// compare finds out, once, which copies are not as the mirror is.
func (m *Mirror) compare(ctx context.Context, compared *bool) error {
	if *compared {
		return nil
	}
	stands := map[diskKey]string{}
	if err := m.cfg.Disk.read(ctx, func(key diskKey, value copied) { stands[key] = value.CacheVersion }); err != nil {
		return err
	}
	for gr, t := range m.tables {
		if !kept(gr) {
			continue
		}
		t.mu.RLock()
		t.each(func(e *entry) {
			of := diskKey{gr, e.key()}
			if version, ok := stands[of]; !ok || version != e.version {
				m.touch(gr, of.Key)
			}
			delete(stands, of)
		})
		if known := (diskKey{resource: gr}); t.unknown == nil {
			m.touch(gr, client.Key{})
			delete(stands, known)
		}
		t.mu.RUnlock()
	}
	for key := range stands { // what is on the disk and nowhere else, or of a resource that is kept no more
		m.mark(key)
	}
	*compared = true
	return nil
}

// flush writes what has changed. What could not be written is tried again the next time.
func (m *Mirror) flush(ctx context.Context) error {
	m.mu.Lock()
	dirty := m.dirty
	m.dirty = map[diskKey]struct{}{}
	m.mu.Unlock()
	batch := diskWrite{etcd: m.cfg.Disk.Etcd, dirty: dirty}
	err := func() error {
		for key := range dirty {
			op, err := m.operation(key)
			if err != nil {
				return err
			}
			if err := batch.add(ctx, key, op); err != nil {
				return err
			}
		}
		return batch.commit(ctx)
	}()
	for key := range dirty {
		m.mark(key)
	}
	return err
}

// diskWrite writes copies together that fit into one transaction.
type diskWrite struct {
	etcd *clientv3.Client
	// dirty are the copies to be written, which leave it when they are.
	dirty map[diskKey]struct{}
	keys  []diskKey
	ops   []clientv3.Op
	bytes int
}

func (w *diskWrite) add(ctx context.Context, key diskKey, op clientv3.Op) error {
	size := len(op.KeyBytes()) + len(op.ValueBytes())
	if len(w.ops) == diskBatch || w.bytes+size > diskBytes {
		if err := w.commit(ctx); err != nil {
			return err
		}
	}
	w.keys, w.ops, w.bytes = append(w.keys, key), append(w.ops, op), w.bytes+size
	return nil
}

func (w *diskWrite) commit(ctx context.Context) error {
	if len(w.ops) == 0 {
		return nil
	}
	_, err := w.etcd.Txn(ctx).Then(w.ops...).Commit()
	if len(w.keys) == 1 && (errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrGRPCRequestTooLarge)) {
		// It would hold up all others for ever. A start without the cache does not know it.
		klog.FromContext(ctx).Error(err, "An object of another shard is too large for a copy", "resource", w.keys[0].resource, "object", w.keys[0].Key)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("writing what is known of other shards: %w", err)
	}
	for _, key := range w.keys {
		delete(w.dirty, key)
	}
	w.keys, w.ops, w.bytes = nil, nil, 0
	return nil
}

// operation brings one copy up to date.
func (m *Mirror) operation(of diskKey) (clientv3.Op, error) {
	at := m.cfg.Disk.key(of)
	t := m.tables[of.resource]
	if t == nil || !kept(of.resource) { // it is followed no more, or was kept once
		return clientv3.OpDelete(at), nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if of.Key == (client.Key{}) {
		if t.unknown != nil {
			return clientv3.OpDelete(at), nil
		}
		return clientv3.OpPut(at, "{}"), nil
	}
	e := t.find(of.Key)
	if e == nil {
		return clientv3.OpDelete(at), nil
	}
	object, err := Encode(t.resource, e.obj)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encoding %s %s: %w", of.resource, of.Key, err)
	}
	value, err := json.Marshal(copied{CacheVersion: e.version, Object: object})
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encoding %s %s: %w", of.resource, of.Key, err)
	}
	return clientv3.OpPut(at, string(value)), nil
}
