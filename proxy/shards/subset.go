package shards

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// RootShard is the name of the shard that holds the logical cluster "root".
const RootShard = "root"

// Subset says to which shards a proxy leads. The zero Subset is all of them.
type Subset struct {
	// Names are the shards by name, Selector by the labels of their Shard objects. Given both, either is enough.
	Names    []string
	Selector labels.Selector
}

// All tells whether no shard is left out.
func (s Subset) All() bool { return len(s.Names) == 0 && s.Selector == nil }

// Has tells whether the proxy leads to the shard.
func (s Subset) Has(name string, of map[string]string) bool {
	return s.All() || slices.Contains(s.Names, name) || s.Selector != nil && s.Selector.Matches(labels.Set(of))
}

// choose tells whether the proxy leads to the shard, and whether it has to know what is on it. That goes for the root
// shard in any case: paths begin there.
func (s Subset) choose(name string, of map[string]string) (led, followed bool) {
	led = s.Has(name, of)
	return led, led || name == RootShard
}
