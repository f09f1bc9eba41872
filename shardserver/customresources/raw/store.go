package raw

import (
	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// Store returns what the shard's own parts read the storage by: objects are *Object, the logical cluster is that of
// the context, which may be the wildcard for lists and watches.
func (s *Storage) Store() clusterstorage.Store { return nil }
