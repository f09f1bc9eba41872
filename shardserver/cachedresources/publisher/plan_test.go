package publisher

import (
	"fmt"
	"maps"
	"testing"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// newObject returns one as the watch cache has it.
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
		"what is new is written":                          {[]crdstorage.Object{newObject(t, "a", "u", 7, "")}, nil, write},
		"what was published is left alone":                {[]crdstorage.Object{newObject(t, "a", "u", 7, "")}, publishedAs("u", "7"), leave},
		"what has changed is written":                     {[]crdstorage.Object{newObject(t, "a", "u", 8, "")}, publishedAs("u", "7"), write},
		"what was made anew is written":                   {[]crdstorage.Object{newObject(t, "a", "v", 7, "")}, publishedAs("u", "7"), write},
		"what is gone, or not selected, is removed":       {nil, publishedAs("u", "7"), remove},
		"what waits for a finalizer stays as it was":      {[]crdstorage.Object{newObject(t, "a", "u", 8, deleting+`,"finalizers":["x/y"]`)}, publishedAs("u", "7"), leave},
		"and is not published if it was not":              {[]crdstorage.Object{newObject(t, "a", "u", 8, deleting+`,"finalizers":["x/y"]`)}, nil, leave},
		"what is deleted and waits for nobody is removed": {[]crdstorage.Object{newObject(t, "a", "u", 8, deleting)}, publishedAs("u", "7"), remove},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan(tc.objects, tc.published); !maps.Equal(got, map[string]step{"a": tc.want}) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
