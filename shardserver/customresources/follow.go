package customresources

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
)

// followAgain is how long to wait before a watch that ended is started anew.
const followAgain = 100 * time.Millisecond

// Run follows all definitions until the context ends.
func (c *Catalog) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("The watch of all definitions ended, starting it again", "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// WaitForSync returns when every definition that existed at the start is known.
func (c *Catalog) WaitForSync(ctx context.Context) error {
	select {
	case <-c.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow runs one watch to its end.
func (c *Catalog) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(logicalcluster.With(ctx, logicalcluster.Wildcard))
	defer cancel()
	stream, err := c.watchAll(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	found := sets.New[key]()
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		accessor, err := meta.Accessor(event.Object)
		if err != nil {
			return err
		}
		version, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
		if err != nil {
			return err
		}
		if event.Type == watch.Bookmark {
			if found != nil {
				c.removeOthers(found, version)
				found = nil
				c.once.Do(func() { close(c.synced) })
			}
			c.saw(version)
			continue
		}
		k := key{logicalcluster.Of(accessor), accessor.GetName()}
		if event.Type == watch.Deleted {
			c.remove(k, version)
		} else if err := c.read(ctx, k); err != nil {
			return err
		}
		if found != nil { // what exists comes in the order of keys, not of versions
			found.Insert(k)
		} else {
			c.saw(version)
		}
	}
	return nil
}

// watchAll is storage.Reader.WatchAll without a copy of each definition, which may be large: of the events, only the
// metadata is looked at.
func (c *Catalog) watchAll(ctx context.Context) (watch.Interface, error) {
	resource, err := c.Registry.Get(apiextensions.Definitions)
	if err != nil {
		return nil, err
	}
	sendInitial := true
	return resource.Store.Watch(ctx, &internalversion.ListOptions{
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		SendInitialEvents:    &sendInitial,
		AllowWatchBookmarks:  true,
	})
}

// read takes in a definition as the watch cache has it, whose specification is shared with all equal ones. That may be
// younger than the event that it is read for.
func (c *Catalog) read(ctx context.Context, k key) error {
	object, err := c.reader.Get(logicalcluster.With(ctx, k.cluster), "", k.name)
	if apierrors.IsNotFound(err) {
		return nil // the event that says so is on its way
	}
	if err != nil {
		return fmt.Errorf("reading definition %s of %s: %w", k.name, k.cluster, err)
	}
	o, err := observe(c.Shared, object)
	if err != nil {
		return err
	}
	return c.update(o, false)
}

// saw remembers up to where the watch has come.
func (c *Catalog) saw(version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = max(c.seen, version)
}

// removeOthers forgets what was deleted while no watch was there to tell.
func (c *Catalog) removeOthers(found sets.Set[key], version uint64) {
	var gone []key
	c.mu.RLock()
	for cluster, definitions := range c.clusters {
		for name := range definitions {
			if k := (key{cluster, name}); !found.Has(k) {
				gone = append(gone, k)
			}
		}
	}
	for uid := range c.schemas {
		if k := (key{logicalcluster.BoundCRDs, string(uid)}); !found.Has(k) {
			gone = append(gone, k)
		}
	}
	c.mu.RUnlock()
	for _, k := range gone {
		c.remove(k, version)
	}
}
