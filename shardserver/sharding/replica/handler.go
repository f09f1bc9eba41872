package replica

import (
	"context"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// eventHandler updates a store from its reflector. It implements client.EventHandler.
type eventHandler struct {
	ctx   context.Context
	store *store
	// disconnected is set while the watch is not open.
	disconnected bool
}

// OnReplace adds the objects in the cache. Objects missing there become unconfirmed: prune deletes them once their
// shard is complete.
func (eh *eventHandler) OnReplace(objects []*client.Object, at client.Position) {
	s, inf := eh.store, eh.store.informer
	gr := s.resource.GroupResource()
	s.mu.Lock()
	first := !s.hasListed()
	s.at, s.relisting = at, false
	s.unconfirmed, s.overQuota = 0, nil
	s.forEach(func(e *entry) {
		e.unconfirmed = true
		s.unconfirmed++
	})
	published := map[client.Key]Version{}
	for _, object := range objects {
		if object.Shard == inf.cfg.Shard {
			published[object.Key] = eh.version(object)
			continue
		}
		eh.add(object)
	}
	s.mu.Unlock()
	inf.shardTracker.replace(inf, gr, objects, at)
	s.published.replace(published, at.Incarnation)
	eh.disconnected = false
	eh.pruneAfter(gr == shardReports || gr == shards)
	if first {
		inf.listDone()
	}
}

// OnEvent applies one change.
func (eh *eventHandler) OnEvent(change watch.EventType, object *client.Object, at client.Position) {
	s, inf := eh.store, eh.store.informer
	gr := s.resource.GroupResource()
	s.mu.Lock()
	s.at = at
	switch {
	case object == nil, object.Shard == inf.cfg.Shard:
	case change == watch.Deleted:
		s.remove(object.Key)
	default:
		eh.add(object)
	}
	s.mu.Unlock()
	inf.shardTracker.change(inf, gr, change, object, at)
	eh.onPublishedEvent(change, object)
	eh.pruneAfter(object != nil && (gr == shardReports || gr == shards))
}

// onPublishedEvent applies a change of an object of this shard.
func (eh *eventHandler) onPublishedEvent(change watch.EventType, object *client.Object) {
	s := eh.store
	if object == nil || object.Shard != s.informer.cfg.Shard {
		return
	}
	if change == watch.Deleted {
		s.published.drop(object.Key, object.Meta.ResourceVersion)
		return
	}
	s.published.put(object.Key, eh.version(object))
}

// pruneAfter prunes the store, or all stores after a change of shards or their reports.
func (eh *eventHandler) pruneAfter(all bool) {
	if all {
		eh.store.informer.pruneAll(eh.ctx)
		return
	}
	eh.store.prune(eh.ctx)
}

// add stores an object of another shard, if the trust policy and the quota allow it. Callers must hold the store's mu.
func (eh *eventHandler) add(object *client.Object) {
	s := eh.store
	if !s.informer.trusts(s.resource.GroupResource(), object) {
		return
	}
	version := s.at.Incarnation + "/" + object.Meta.ResourceVersion
	switch e := s.find(object.Key); {
	case e == nil && s.exceedsQuota(eh.ctx, object.Key):
		return
	case e != nil && e.version == version:
		s.confirm(e)
		return
	}
	obj, err := decode(s.resource, object.Raw)
	if err != nil {
		// The object may be of a newer version of this program: the previous state is kept.
		klog.FromContext(eh.ctx).Error(err, "Failed to decode an object of another shard", "resource", s.resource.GroupResource(), "object", object.Key)
		undecodable.WithLabelValues(s.resource.GroupResource().String()).Inc()
		return
	}
	s.put(object.Shard, version, obj)
}

// version returns the state of an object of this shard.
func (eh *eventHandler) version(object *client.Object) Version {
	version, err := VersionOf(object)
	if err != nil {
		klog.FromContext(eh.ctx).Error(err, "Failed to read an object of this shard in the cache", "object", object.Key)
	}
	return version
}

// OnConnect ends the outage of the resource, and the backoff of the other reflectors.
func (eh *eventHandler) OnConnect() {
	inf := eh.store.informer
	for _, other := range inf.outage.connected(eh.ctx, eh.store.resource.GroupResource()) {
		inf.stores[other].retryNow()
	}
	if eh.disconnected {
		eh.disconnected = false
		eh.store.published.restart()
	}
}

// OnDisconnect starts the outage of the resource.
func (eh *eventHandler) OnDisconnect(err error) {
	eh.disconnected = true
	eh.store.published.suspend()
	eh.store.informer.outage.disconnected(eh.ctx, eh.store.resource.GroupResource(), err)
}

// listDone counts the resources that have been listed.
func (inf *Informer) listDone() {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.pendingLists--; inf.pendingLists == 0 {
		close(inf.allListed)
	}
}
