package customresources

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// TestNewsInAnyOrder is about the watch and requests that bring the same definition: whatever comes first, what is
// deleted is forgotten, and what is there is known.
func TestNewsInAnyOrder(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	k := key{logicalcluster.MustParseName("a"), widgets.String()}
	type step func(*testing.T, *Catalog)
	put := func(version uint64, byRequest bool) step {
		return func(t *testing.T, c *Catalog) {
			if err := c.update(observed{key: k, version: version, resource: widgets}, byRequest); err != nil {
				t.Fatal(err)
			}
		}
	}
	watched := func(version uint64) step {
		return func(t *testing.T, c *Catalog) {
			put(version, false)(t, c)
			c.saw(strconv.FormatUint(version, 10))
		}
	}
	requested := func(version uint64) step { return put(version, true) }
	deleted := func(version uint64) step {
		return func(_ *testing.T, c *Catalog) {
			c.remove(k, version)
			c.saw(strconv.FormatUint(version, 10))
		}
	}
	listed := func(version uint64, found ...key) step {
		return func(_ *testing.T, c *Catalog) {
			c.removeOthers(sets.New(found...), version)
			c.saw(strconv.FormatUint(version, 10))
		}
	}
	for name, tc := range map[string]struct {
		steps []step
		want  uint64 // version that is known, 0 for none
	}{
		"the watch brings it":                               {[]step{watched(1)}, 1},
		"the watch takes it":                                {[]step{watched(1), deleted(2)}, 0},
		"a request is first":                                {[]step{requested(3), watched(3)}, 3},
		"a request is ahead of the watch":                   {[]step{watched(1), requested(3), watched(2)}, 3},
		"a request that read before the watch saw the end":  {[]step{watched(1), deleted(2), requested(1)}, 0},
		"a request that read what came after the end":       {[]step{watched(1), deleted(2), requested(3)}, 3},
		"an end before what a request read":                 {[]step{watched(1), requested(3), deleted(2)}, 3},
		"a request before the watch has begun":              {[]step{requested(1)}, 1},
		"and it is in the first list":                       {[]step{requested(1), listed(5, k)}, 1},
		"and it was gone before the first list":             {[]step{requested(1), listed(5)}, 0},
		"and it came after the first list":                  {[]step{requested(6), listed(5)}, 6},
		"it went while no watch was there":                  {[]step{watched(1), listed(5)}, 0},
		"a request in between reads the old":                {[]step{watched(1), listed(5), requested(1)}, 0},
		"a younger one is known when the watch starts anew": {[]step{watched(7), listed(9, k), watched(7)}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			registry := storage.NewRegistry()
			c := NewCatalog(Config{Registry: registry, Shared: apiextensions.NewShared(), Bindings: bindings.NewIndex(registry)})
			c.storages[storageKey{widgets, Segment}] = &opened{users: 1} // the storage is not what this is about, and stays
			for _, step := range tc.steps {
				step(t, c)
			}
			var got uint64
			if d := c.clusters[k.cluster][k.name]; d != nil {
				got = d.version
			}
			if got != tc.want {
				t.Errorf("known is version %d, want %d", got, tc.want)
			}
			if known, left := len(c.clusters), c.storages[storageKey{widgets, Segment}].users-1; known != left {
				t.Errorf("%d logical clusters are known, and %d definitions counted", known, left)
			}
		})
	}
}
