package customresources

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// storageKey names the storage of a resource: of all logical clusters that define it, or that bind it with an identity.
type storageKey struct {
	resource schema.GroupResource
	// segment is Segment or an identity.
	segment string
}

// contentKey names a content: equal definitions over one storage.
type contentKey struct {
	hash    apiextensions.Hash
	segment string
}

// opened is a storage and how many definitions, bound resources and contents are there for it: it stays as long as a
// request works in it.
type opened struct {
	storage *crdstorage.Storage
	users   int
	release func()
}

// contentOf returns the content of a definition over a storage, which is open, with one user more.
func (c *Catalog) contentOf(o observed, segment string) *Content {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := contentKey{o.hash, segment}
	content := c.contents[key]
	if content == nil {
		holding := c.storages[storageKey{o.resource, segment}]
		holding.users++
		store := holding.storage
		content = &Content{
			Hash:         o.hash,
			segment:      segment,
			store:        store,
			spec:         o.object.Spec,
			names:        o.object.Status.AcceptedNames,
			anyPathNames: o.anyPathNames,
			resource:     resourceOf(o.object, store.Store(), store.Prefix()),
			compile:      c.compile,
		}
		c.contents[key] = content
	}
	content.users.Add(1)
	return content
}

// release takes one user from a content, and drops it after the last.
func (c *Catalog) release(content *Content) {
	if content == nil || content.users.Add(-1) > 0 {
		return
	}
	key := contentKey{content.Hash, content.segment}
	c.mu.Lock()
	last := content.users.Load() == 0 && c.contents[key] == content // nobody took it up again, or dropped it before
	if last {
		delete(c.contents, key)
	}
	c.mu.Unlock()
	if last {
		content.drop()
		c.close(storageKey{content.GroupResource(), content.segment})
	}
}

// open makes sure that a storage is there, and counts one user. What it holds is defined as observed.
func (c *Catalog) open(key storageKey, o observed) error {
	c.mu.Lock()
	known := c.storages[key]
	if known != nil {
		known.users++
	}
	c.mu.Unlock()
	if known != nil {
		return nil
	}
	store, release, err := c.Pool.Acquire(key.resource, key.segment)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.storages[key] = &opened{storage: store, users: 1, release: release}
	c.Registry.AddCustom(resourceOf(o.object, store.Store(), store.Prefix()))
	return nil
}

// close counts one user less, and closes the storage after the last. Nobody can reach what is in it then.
func (c *Catalog) close(key storageKey) {
	c.mu.Lock()
	known := c.storages[key]
	if known == nil {
		c.mu.Unlock()
		klog.Background().Error(nil, "A definition had no storage", "resource", key.resource, "segment", key.segment)
		return
	}
	known.users--
	last := known.users == 0
	if last {
		delete(c.storages, key)
		c.Registry.RemoveCustom(known.storage.Prefix())
	}
	c.mu.Unlock()
	if last {
		known.release()
	}
}

// storage returns an open storage, or nil.
func (c *Catalog) storage(key storageKey) *crdstorage.Storage {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if known := c.storages[key]; known != nil {
		return known.storage
	}
	return nil
}
