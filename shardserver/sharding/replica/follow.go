package replica

import (
	"context"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// follower feeds a table from its stream. It implements client.EventHandler.
type follower struct {
	ctx   context.Context
	table *table
	// lost says that the stream is not open.
	lost bool
}

// OnReplace takes over what is in the cache, and keeps what is missing there until it is sure that it is gone.
func (f *follower) OnReplace(objects []*client.Object, at client.Position) {
	t, m := f.table, f.table.mirror
	gr := t.resource.GroupResource()
	t.mu.Lock()
	first := !t.listed()
	t.at, t.relisting = at, false
	t.unseen, t.refused = 0, nil
	t.each(func(e *entry) {
		e.unseen = true
		t.unseen++
	})
	own := map[client.Key]Version{}
	for _, object := range objects {
		if object.Shard == m.cfg.Shard {
			own[object.Key] = f.version(object)
			continue
		}
		f.take(object)
	}
	t.mu.Unlock()
	m.reports.replace(m, gr, objects, at)
	t.own.replace(own, at.Incarnation)
	f.lost = false
	f.progressed(gr == shardReports || gr == shards)
	if first {
		m.listedOne()
	}
}

// OnEvent takes over one change.
func (f *follower) OnEvent(change watch.EventType, object *client.Object, at client.Position) {
	t, m := f.table, f.table.mirror
	gr := t.resource.GroupResource()
	t.mu.Lock()
	t.at = at
	switch {
	case object == nil, object.Shard == m.cfg.Shard:
	case change == watch.Deleted:
		t.remove(object.Key)
	default:
		f.take(object)
	}
	t.mu.Unlock()
	m.reports.change(m, gr, change, object, at)
	f.noteOwn(change, object)
	f.progressed(object != nil && (gr == shardReports || gr == shards))
}

// noteOwn takes over what a change tells about this shard's own objects.
func (f *follower) noteOwn(change watch.EventType, object *client.Object) {
	t := f.table
	if object == nil || object.Shard != t.mirror.cfg.Shard {
		return
	}
	if change == watch.Deleted {
		t.own.drop(object.Key, object.Meta.ResourceVersion)
		return
	}
	t.own.put(object.Key, f.version(object))
}

// progressed acts on what was learnt, in all tables if it was about shards.
func (f *follower) progressed(aboutShards bool) {
	if aboutShards {
		f.table.mirror.sweepAll(f.ctx)
		return
	}
	f.table.sweep(f.ctx)
}

// take keeps an object of another shard, if that may say such a thing. The lock of the table is held.
func (f *follower) take(object *client.Object) {
	t := f.table
	if !t.mirror.believes(t.resource.GroupResource(), object) {
		return
	}
	version := t.at.Incarnation + "/" + object.Meta.ResourceVersion
	switch e := t.find(object.Key); {
	case e == nil && t.refuses(f.ctx, object.Key):
		return
	case e != nil && e.version == version:
		t.see(e)
		return
	}
	obj, err := decode(t.resource, object.Raw)
	if err != nil {
		// Another version of this program may know more: what was known of the object stays.
		klog.FromContext(f.ctx).Error(err, "Decoding an object of another shard failed", "resource", t.resource.GroupResource(), "object", object.Key)
		undecoded.WithLabelValues(t.resource.GroupResource().String()).Inc()
		return
	}
	t.put(object.Shard, version, obj)
}

// version returns in which state an object of this shard is.
func (f *follower) version(object *client.Object) Version {
	version, err := VersionOf(object)
	if err != nil {
		klog.FromContext(f.ctx).Error(err, "Reading an object of this shard in the cache failed", "object", object.Key)
	}
	return version
}

// OnConnect notes that the cache answers again.
func (f *follower) OnConnect() {
	m := f.table.mirror
	for _, other := range m.outage.end(f.ctx, f.table.resource.GroupResource()) {
		m.tables[other].retryNow() // the cache is back: there is nothing to wait for
	}
	if f.lost {
		f.lost = false
		f.table.own.restart()
	}
}

// OnDisconnect notes that the cache does not answer.
func (f *follower) OnDisconnect(err error) {
	f.lost = true
	f.table.own.suspend()
	f.table.mirror.outage.begin(f.ctx, f.table.resource.GroupResource(), err)
}

// listedOne counts the resources that were listed.
func (m *Mirror) listedOne() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unlisted--; m.unlisted == 0 {
		close(m.listed)
	}
}
