package garbage

import "github.com/atoll-dev/atoll/logicalcluster"

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
