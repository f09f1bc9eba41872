package customresources

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Run follows all definitions until the context ends. It is called once.
func (c *Catalog) Run(ctx context.Context) { c.following.Run(ctx) }

// WaitForSync returns when every definition that existed at the start is known.
func (c *Catalog) WaitForSync(ctx context.Context) error { return c.following.WaitForSync(ctx) }

// follower takes into a catalog what a watch brings.
type follower struct {
	*Catalog
	// found is what exists, until all of it was told.
	found sets.Set[key]
}

func (f *follower) Begin() { f.found = sets.New[key]() }

func (*follower) End() {}

func (f *follower) Take(ctx context.Context, object metav1.Object, deleted bool) error {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	k := key{logicalcluster.Of(object), object.GetName()}
	if f.found != nil {
		f.found.Insert(k)
	}
	if deleted {
		f.remove(k, version)
		return nil
	}
	return f.read(ctx, k)
}

func (f *follower) Complete(version string) {
	if at, err := strconv.ParseUint(version, 10, 64); err == nil {
		f.removeOthers(f.found, at)
	}
	f.found = nil
}

func (f *follower) Saw(version string) {
	if at, err := strconv.ParseUint(version, 10, 64); err == nil {
		f.saw(at)
	}
}

// watchAll is storage.Reader.WatchAll without a copy of each definition, which may be large.
func (c *Catalog) watchAll(ctx context.Context) (watch.Interface, error) {
	resource, err := c.Registry.Get(apiextensions.Definitions)
	if err != nil {
		return nil, err
	}
	return storage.WatchAllMetadata(ctx, resource)
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
