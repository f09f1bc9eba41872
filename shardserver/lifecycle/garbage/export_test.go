package garbage

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// SizeIn returns the number of objects and owners of one logical cluster in the graph. The shard's own objects in root
// have owners, too.
func (c *Collector) SizeIn(cluster logicalcluster.Name) (objects, owners int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.nodes {
		if k.cluster == cluster {
			objects++
		}
	}
	for k := range c.dependents {
		if k.cluster == cluster {
			owners++
		}
	}
	return objects, owners
}

// CollectAgain processes an object as if the deletion of one of its owners had been observed before.
func (c *Collector) CollectAgain(ctx context.Context, cluster logicalcluster.Name, uid, owner types.UID) error {
	if _, known := c.snapshot(key{cluster, uid}); !known {
		return errors.New("the graph does not have the object yet")
	}
	c.deletedOwners.Add(key{cluster, owner}, nil)
	_, err := c.process(logicalcluster.With(ctx, cluster), key{cluster, uid})
	return err
}
