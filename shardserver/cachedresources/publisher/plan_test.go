package publisher

import (
	"fmt"
	"maps"
	"testing"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// newObject returns an object in the form of the watch cache.
func newObject(t *testing.T, name, uid string, version uint64, extraMetadata string) crdstorage.Object {
	t.Helper()
	created, err := crdstorage.NewObject(fmt.Appendf(nil, `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":%q,"uid":%q%s}}`, name, uid, extraMetadata), version)
	if err != nil {
		t.Fatal(err)
	}
	return *created
}

func TestPlan(t *testing.T) {
	const deleting = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
	publishedAs := func(uid, version string) map[string]publishedObject {
		return map[string]publishedObject{"a": {original: original{uid, version}}}
	}
	for name, tc := range map[string]struct {
		objects   []crdstorage.Object
		published map[string]publishedObject
		want      step
	}{
		"new object":                   {[]crdstorage.Object{newObject(t, "a", "u", 7, "")}, nil, write},
		"published object":             {[]crdstorage.Object{newObject(t, "a", "u", 7, "")}, publishedAs("u", "7"), leave},
		"changed object":               {[]crdstorage.Object{newObject(t, "a", "u", 8, "")}, publishedAs("u", "7"), write},
		"recreated object":             {[]crdstorage.Object{newObject(t, "a", "v", 7, "")}, publishedAs("u", "7"), write},
		"deleted or unselected object": {nil, publishedAs("u", "7"), remove},
		"published object with a finalizer that is being deleted":   {[]crdstorage.Object{newObject(t, "a", "u", 8, deleting+`,"finalizers":["x/y"]`)}, publishedAs("u", "7"), leave},
		"unpublished object with a finalizer that is being deleted": {[]crdstorage.Object{newObject(t, "a", "u", 8, deleting+`,"finalizers":["x/y"]`)}, nil, leave},
		"deleted object without finalizers":                         {[]crdstorage.Object{newObject(t, "a", "u", 8, deleting)}, publishedAs("u", "7"), remove},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan(tc.objects, tc.published); !maps.Equal(got, map[string]step{"a": tc.want}) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
