package crdregistry

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// TestUpdateOrder covers the informer and requests that update the same definition: in every order, the registry
// removes deleted definitions and keeps existing ones.
func TestUpdateOrder(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	key := definitionKey{logicalcluster.MustParseName("a"), widgets.String()}
	type step func(*testing.T, *Registry)
	put := func(version uint64, fromRequest bool) step {
		return func(t *testing.T, r *Registry) {
			if err := r.update(parsedDefinition{definitionKey: key, version: version, resource: widgets}, fromRequest); err != nil {
				t.Fatal(err)
			}
		}
	}
	informerUpdate := func(version uint64) step {
		return func(t *testing.T, r *Registry) {
			put(version, false)(t, r)
			r.onBookmark(strconv.FormatUint(version, 10))
		}
	}
	requestUpdate := func(version uint64) step { return put(version, true) }
	deleted := func(version uint64) step {
		return func(_ *testing.T, r *Registry) {
			r.remove(key, version)
			r.onBookmark(strconv.FormatUint(version, 10))
		}
	}
	initialList := func(version uint64, objects ...definitionKey) step {
		return func(_ *testing.T, r *Registry) {
			r.removeUnlisted(sets.New(objects...), version)
			r.onBookmark(strconv.FormatUint(version, 10))
		}
	}
	for name, tc := range map[string]struct {
		steps []step
		want  uint64 // the version in the registry, 0 for none
	}{
		"the informer adds it":                                        {[]step{informerUpdate(1)}, 1},
		"the informer deletes it":                                     {[]step{informerUpdate(1), deleted(2)}, 0},
		"a request is first":                                          {[]step{requestUpdate(3), informerUpdate(3)}, 3},
		"a request is ahead of the informer":                          {[]step{informerUpdate(1), requestUpdate(3), informerUpdate(2)}, 3},
		"a request that read before the deletion event":               {[]step{informerUpdate(1), deleted(2), requestUpdate(1)}, 0},
		"a request that read a definition created after the deletion": {[]step{informerUpdate(1), deleted(2), requestUpdate(3)}, 3},
		"a deletion older than the definition that a request read":    {[]step{informerUpdate(1), requestUpdate(3), deleted(2)}, 3},
		"a request before the informer starts":                        {[]step{requestUpdate(1)}, 1},
		"then it is in the initial list":                              {[]step{requestUpdate(1), initialList(5, key)}, 1},
		"then it is deleted before the initial list":                  {[]step{requestUpdate(1), initialList(5)}, 0},
		"then it is created after the initial list":                   {[]step{requestUpdate(6), initialList(5)}, 6},
		"deleted while the informer was not watching":                 {[]step{informerUpdate(1), initialList(5)}, 0},
		"then a request reads the deleted one":                        {[]step{informerUpdate(1), initialList(5), requestUpdate(1)}, 0},
		"the registry has a newer one when the informer lists":        {[]step{informerUpdate(7), initialList(9, key), informerUpdate(7)}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			resources := storage.NewRegistry(kcpcore.Locality)
			r := New(Config{Resources: resources, Specs: apiextensions.NewSpecInterner(), Bindings: bindings.NewIndex(resources)})
			// A reference of the test, so that definitions neither open nor close the storage.
			r.mu.Lock()
			store := r.storages.retain(storageKey{widgets, Segment}, func() openStorage { return openStorage{} })
			r.mu.Unlock()
			for _, step := range tc.steps {
				step(t, r)
			}
			var got uint64
			if d := r.definitions[key.cluster][key.name]; d != nil {
				got = d.version
			}
			if got != tc.want {
				t.Errorf("the registry has version %d, want %d", got, tc.want)
			}
			if clusters, references := len(r.definitions), store.count.Load()-1; int64(clusters) != references {
				t.Errorf("%d logical clusters with definitions, %d references", clusters, references)
			}
		})
	}
}
