package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// Load fills the informer from the snapshot. It must be called before Run.
func (inf *Informer) Load(ctx context.Context) error {
	if inf.cfg.SnapshotStore == nil {
		return nil
	}
	return inf.cfg.SnapshotStore.read(ctx, func(key snapshotKey, value snapshotEntry) {
		s := inf.stores[key.resource]
		if s == nil || !hasSnapshot(key.resource) {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if key.Key == (client.Key{}) {
			s.notSynced = nil
			return
		}
		obj, err := decode(s.resource, value.Object)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to decode an object of the snapshot", "resource", key.resource, "object", key.Key)
			return
		}
		s.put(key.Shard, value.CacheVersion, obj)
		if e := s.find(key.Key); e != nil {
			e.unconfirmed = true
			s.unconfirmed++
		}
	})
}

// hasSnapshot returns whether a resource is part of the snapshot. Reports and the requests and reports of logical
// clusters are outdated within seconds: a start without the cache has no use for them.
func hasSnapshot(resource schema.GroupResource) bool {
	switch resource {
	case shardReports, logicalClusterRequests, logicalClusterReports:
		return false
	}
	return true
}

// markDirty schedules the write of an object, if it is part of the snapshot and this replica writes it.
func (inf *Informer) markDirty(resource schema.GroupResource, key client.Key) {
	if hasSnapshot(resource) {
		inf.markKeyDirty(snapshotKey{resource, key})
	}
}

// markKeyDirty is markDirty for any key.
func (inf *Informer) markKeyDirty(key snapshotKey) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.dirty != nil {
		inf.dirty[key] = struct{}{}
	}
}

// Persist keeps the snapshot up to date until the context ends, or another replica of the shard writes it. One replica of
// a shard runs it at a time.
func (inf *Informer) Persist(ctx context.Context) {
	if inf.cfg.SnapshotStore == nil {
		return
	}
	select {
	case <-inf.allListed: // before that, the snapshot may be more complete than the informer
	case <-ctx.Done():
		return
	}
	inf.mu.Lock()
	inf.dirty = map[snapshotKey]struct{}{}
	inf.mu.Unlock()
	defer func() {
		inf.mu.Lock()
		defer inf.mu.Unlock()
		inf.dirty = nil
	}()
	ticker := time.NewTicker(snapshotInterval)
	defer ticker.Stop()
	for term := (*Term)(nil); ; {
		err := inf.startTerm(ctx, &term)
		if err == nil {
			err = inf.flush(ctx, term)
		}
		if errors.Is(err, ErrTermEnded) { // this replica has lost the lease of controllers
			return
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to write the snapshot of objects of other shards, will retry")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// startTerm acquires the snapshot, unless it is acquired, and marks dirty what differs between it and the informer.
func (inf *Informer) startTerm(ctx context.Context, term **Term) error {
	if *term != nil {
		return nil
	}
	acquired, err := inf.cfg.SnapshotStore.AcquireTerm(ctx, segment)
	if err != nil {
		return err
	}
	stored := map[snapshotKey]string{}
	if err := inf.cfg.SnapshotStore.read(ctx, func(key snapshotKey, value snapshotEntry) { stored[key] = value.CacheVersion }); err != nil {
		return err
	}
	for gr, s := range inf.stores {
		if !hasSnapshot(gr) {
			continue
		}
		s.mu.RLock()
		s.forEach(func(e *entry) {
			key := snapshotKey{gr, e.key()}
			if version, ok := stored[key]; !ok || version != e.version {
				inf.markDirty(gr, key.Key)
			}
			delete(stored, key)
		})
		if marker := (snapshotKey{resource: gr}); s.notSynced == nil {
			inf.markDirty(gr, client.Key{})
			delete(stored, marker)
		}
		s.mu.RUnlock()
	}
	for key := range stored { // deleted objects, and those of resources that are no longer in the snapshot
		inf.markKeyDirty(key)
	}
	*term = acquired
	return nil
}

// flush writes the dirty objects in a term. Those that cannot be written stay dirty.
func (inf *Informer) flush(ctx context.Context, term *Term) error {
	inf.mu.Lock()
	dirty := inf.dirty
	inf.dirty = map[snapshotKey]struct{}{}
	inf.mu.Unlock()
	batch := snapshotBatch{store: inf.cfg.SnapshotStore, term: term, dirty: dirty}
	err := func() error {
		for key := range dirty {
			op, err := inf.operation(key)
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
		inf.markKeyDirty(key)
	}
	return err
}

// operation returns the write that brings one entry up to date.
func (inf *Informer) operation(key snapshotKey) (clientv3.Op, error) {
	etcdKey := inf.cfg.SnapshotStore.key(key)
	s := inf.stores[key.resource]
	if s == nil || !hasSnapshot(key.resource) { // the resource is no longer in the snapshot
		return clientv3.OpDelete(etcdKey), nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if key.Key == (client.Key{}) {
		if s.notSynced != nil {
			return clientv3.OpDelete(etcdKey), nil
		}
		return clientv3.OpPut(etcdKey, "{}"), nil
	}
	e := s.find(key.Key)
	if e == nil {
		return clientv3.OpDelete(etcdKey), nil
	}
	object, err := Encode(s.resource, e.obj)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encoding %s %s: %w", key.resource, key.Key, err)
	}
	value, err := json.Marshal(snapshotEntry{CacheVersion: e.version, Object: object})
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encoding %s %s: %w", key.resource, key.Key, err)
	}
	return clientv3.OpPut(etcdKey, string(value)), nil
}
