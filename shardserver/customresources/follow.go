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

// Run keeps the catalog up to date until the context ends. It is called once.
func (c *Catalog) Run(ctx context.Context) { c.informer.Run(ctx) }

// WaitForSync returns when every definition that existed at the start is in the catalog.
func (c *Catalog) WaitForSync(ctx context.Context) error { return c.informer.WaitForSync(ctx) }

func (c *Catalog) onReplace(ctx context.Context, objects []metav1.Object, resourceVersion string) error {
	existing := sets.New[key]()
	for _, object := range objects {
		k := key{logicalcluster.Of(object), object.GetName()}
		existing.Insert(k)
		if err := c.read(ctx, k); err != nil {
			return err
		}
	}
	if version, err := strconv.ParseUint(resourceVersion, 10, 64); err == nil {
		c.removeOthers(existing, version)
	}
	c.saw(resourceVersion)
	return nil
}

func (c *Catalog) onUpdate(ctx context.Context, object metav1.Object) error {
	if err := c.read(ctx, key{logicalcluster.Of(object), object.GetName()}); err != nil {
		return err
	}
	c.saw(object.GetResourceVersion())
	return nil
}

func (c *Catalog) onDelete(_ context.Context, object metav1.Object) error {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	c.remove(key{logicalcluster.Of(object), object.GetName()}, version)
	c.saw(object.GetResourceVersion())
	return nil
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

// saw records up to which resource version the informer has delivered every change.
func (c *Catalog) saw(resourceVersion string) {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = max(c.seen, version)
}

// removeOthers removes definitions that were deleted while the watch was disconnected.
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
