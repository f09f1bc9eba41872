package customresources

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.reader.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	found := sets.New[key]()
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		version, err := versionOf(event)
		if err != nil {
			return err
		}
		object, isDefinition := event.Object.(*apiextensionsinternal.CustomResourceDefinition)
		switch event.Type {
		case watch.Bookmark:
			if found != nil {
				c.removeOthers(found, version)
				found = nil
				c.once.Do(func() { close(c.synced) })
			}
			c.saw(version)
		case watch.Added, watch.Modified, watch.Deleted:
			if !isDefinition {
				return fmt.Errorf("got a %T among the definitions", event.Object)
			}
			o, err := observe(c.shared, object)
			if err != nil {
				return err
			}
			if event.Type == watch.Deleted {
				c.remove(o.key, version)
			} else if err := c.update(o, false); err != nil {
				return err
			}
			if found != nil { // what exists comes in the order of keys, not of versions
				found.Insert(o.key)
			} else {
				c.saw(version)
			}
		}
	}
	return nil
}

func versionOf(event watch.Event) (uint64, error) {
	accessor, err := meta.Accessor(event.Object)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
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
	c.mu.RUnlock()
	for _, k := range gone {
		c.remove(k, version)
	}
}
