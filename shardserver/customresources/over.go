package customresources

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// Over returns a content over a storage that is none of the catalog's, and that no logical cluster of this shard has: for
// reading what others have, as a definition in system:bound-crds of a resource describes it. Fails with ServiceUnavailable
// while that is missing. Whoever asked closes it, before the storage.
func (c *Catalog) Over(ctx context.Context, gr schema.GroupResource, uid types.UID, store *crdstorage.Storage) (*Content, error) {
	known := c.schema(uid)
	if known == nil {
		if err := c.readSchema(ctx, gr, uid); err != nil {
			return nil, err
		}
		known = c.schema(uid)
	}
	if !known.servable() || known.resource != gr {
		return nil, unavailable(gr)
	}
	return &Content{
		Hash:         known.hash,
		segment:      store.Segment(),
		store:        store,
		spec:         known.object.Spec,
		names:        known.object.Status.AcceptedNames,
		anyPathNames: known.anyPathNames,
		resource:     resourceOf(known.object, store.Store(), store.Prefix()),
		compile:      c.compile,
	}, nil
}

// Describes tells whether a content of Over still is what the definition says.
func (c *Catalog) Describes(uid types.UID, content *Content) bool {
	known := c.schema(uid)
	return known.servable() && known.hash == content.Hash
}

func (c *Catalog) schema(uid types.UID) *boundSchema {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.schemas[uid]
}

// ServeReads answers a get, list or watch of the objects of the context's logical cluster. On an error nothing was written.
func (c *Content) ServeReads(w http.ResponseWriter, req *http.Request) error {
	compiled, err := c.get()
	if err != nil {
		return err
	}
	if !compiled.reads.Serve(w, req) {
		compiled.stock.ServeHTTP(w, req)
	}
	return nil
}

// Close ends a content of Over, and the watches through it.
func (c *Content) Close() { c.drop() }
