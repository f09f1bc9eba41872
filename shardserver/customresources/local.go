package customresources

import (
	"github.com/atoll-dev/atoll/logicalcluster"
)

// update takes in what a definition says. A request may have read something that the watch has seen the end of: what is
// older than the watch and not known is gone.
func (c *Catalog) update(o observed, byRequest bool) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.closed {
		return errClosed
	}
	if o.cluster == logicalcluster.BoundCRDs {
		return c.updateSchema(o, byRequest)
	}
	key := storageKey{o.resource, Segment}
	c.mu.RLock()
	d, stale := c.clusters[o.cluster][o.name], byRequest && o.version <= c.seen
	c.mu.RUnlock()
	switch {
	case d == nil && stale:
		return nil
	case d == nil && c.Barred(o.resource):
		d = &definition{resource: o.resource}
	case d == nil:
		if err := c.open(key, o); err != nil {
			return err
		}
		d = &definition{resource: o.resource, opened: true}
	case d.version >= o.version:
		return nil
	}
	var content *Content
	if o.served && d.opened {
		content = c.contentOf(o, Segment)
	}
	c.mu.Lock()
	old := d.content
	d.version, d.terminating, d.content = o.version, o.terminating, content
	if old != content {
		d.endWatches()
	}
	if c.clusters[o.cluster] == nil {
		c.clusters[o.cluster] = map[string]*definition{}
	}
	c.clusters[o.cluster][o.name] = d
	c.mu.Unlock()
	c.release(old)
	return nil
}

// remove forgets a definition whose object went, unless there is a younger one.
func (c *Catalog) remove(k key, version uint64) {
	c.changing.Lock()
	defer c.changing.Unlock()
	if k.cluster == logicalcluster.BoundCRDs {
		c.removeSchema(k, version)
		return
	}
	c.mu.Lock()
	d := c.clusters[k.cluster][k.name]
	if d == nil || d.version > version {
		c.mu.Unlock()
		return
	}
	delete(c.clusters[k.cluster], k.name)
	if len(c.clusters[k.cluster]) == 0 {
		delete(c.clusters, k.cluster)
	}
	content := d.content
	d.content = nil
	d.endWatches()
	c.mu.Unlock()
	c.release(content)
	if d.opened {
		c.close(storageKey{d.resource, Segment})
	}
}
