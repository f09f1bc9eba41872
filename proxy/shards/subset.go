package shards

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// RootShard is the name of the shard that has the logical cluster "root".
const RootShard = "root"

// Subset selects the shards that a proxy serves. The zero Subset selects all.
type Subset struct {
	// Names selects shards by name, Selector by the labels of their Shard objects. A shard that either selects is
	// served.
	Names    []string
	Selector labels.Selector
}

// Has reports whether the proxy serves the shard.
func (s Subset) Has(name string, shardLabels map[string]string) bool {
	all := len(s.Names) == 0 && s.Selector == nil
	return all || slices.Contains(s.Names, name) || s.Selector != nil && s.Selector.Matches(labels.Set(shardLabels))
}
