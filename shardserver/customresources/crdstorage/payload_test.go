package crdstorage

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/keymutex"

	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// checkSharedPayload checks that an object with a separate payload behaves like the original.
func checkSharedPayload(t *testing.T, shared, original *Object) {
	t.Helper()
	for _, version := range []uint64{0, 7} {
		shared, original := &Object{stored: shared.stored, resourceVersion: version}, &Object{stored: original.stored, resourceVersion: version}
		if got, want := string(shared.append(nil)), string(original.append(nil)); got != want {
			t.Fatalf("shared: written as %q, want %q", got, want)
		}
		if shared.size() < len(original.append(nil)) {
			t.Fatalf("%q is larger than %d", original.JSON(), shared.size())
		}
	}
	head, payload, tail := shared.stored.split()
	if shared.JSON() != original.JSON() || head+payload+tail != original.JSON() {
		t.Fatalf("shared: %q, %q, want %q", shared.JSON(), []string{head, payload, tail}, original.JSON())
	}
	got, want := meta.AsPartialObjectMetadata(shared), meta.AsPartialObjectMetadata(original)
	if !reflect.DeepEqual(got, want) || shared.GroupVersionKind() != original.GroupVersionKind() || shared.LogicalCluster() != original.LogicalCluster() {
		t.Fatalf("shared: metadata is %v, want %v", got, want)
	}
}

// largeValue is a value of 400 bytes.
var largeValue = `{"text":"` + strings.Repeat("{,0}", 100) + `"}`

func TestSharePayload(t *testing.T) {
	for name, tc := range map[string]struct {
		json  string
		split bool
	}{
		"after the metadata":            {`{"apiVersion":"v1","kind":"Widget","metadata":{"name":"w"},"spec":` + largeValue + `,"status":{}}`, true},
		"before the metadata":           {`{"data":` + largeValue + `,"metadata":{"name":"w","labels":{"a":"b"}}}`, true},
		"without metadata":              {`{"kind":"Widget","spec":` + largeValue + `}`, true},
		"with white space around":       {`{"metadata" : { "name" : "w" } , "spec" : ` + largeValue + ` }`, true},
		"under a key without letters":   {`{"metadata":{"name":"w"},"":` + largeValue + `}`, true},
		"a list":                        {`{"metadata":{"name":"w"},"items":[` + largeValue + `]}`, true},
		"the larger of two":             {`{"metadata":{"name":"w"},"spec":` + largeValue + `,"status":[` + largeValue + `]}`, true},
		"metadata that is large itself": {`{"metadata":{"name":"w","annotations":` + largeValue + `},"spec":{}}`, false},
		"a kind that is large":          {`{"kind":` + largeValue + `,"apiVersion":` + largeValue + `,"metadata":{"name":"w"}}`, false},
		"an empty object":               {`{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			original, shared := newTestObject(t, tc.json), newTestObject(t, tc.json)
			shared.sharePayload(clusterstorage.NewInterner(), clusterstorage.MinInternedSize)
			if split := shared.stored.payload != ""; split != tc.split {
				t.Errorf("the payload is %q", shared.stored.payload)
			}
			checkSharedPayload(t, shared, original)
		})
	}
}

func TestEqualPayloadsAreShared(t *testing.T) {
	payloads := clusterstorage.NewInterner()
	first := newTestObject(t, `{"metadata":{"name":"one"},"spec":`+largeValue+`}`)
	second := newTestObject(t, `{"metadata":{"name":"other"},"spec":`+largeValue+`}`)
	third := newTestObject(t, `{"metadata":{"name":"third"},"spec":[`+largeValue+`]}`)
	for _, o := range []*Object{first, second, third} {
		o.sharePayload(payloads, clusterstorage.MinInternedSize)
		o.sharePayload(payloads, clusterstorage.MinInternedSize) // which is nothing more
	}
	if unsafe.StringData(first.stored.payload) != unsafe.StringData(second.stored.payload) {
		t.Error("two objects do not share the payload")
	}
	if third.stored.payload == first.stored.payload || third.GetName() != "third" || !strings.Contains(third.JSON(), `"spec":[`+largeValue) {
		t.Errorf("the third object is %s", third.JSON())
	}
}

func TestVariantIsComputedOnce(t *testing.T) {
	decodings := &countingCodec{Codec: unstructured.UnstructuredJSONScheme}
	view := &View{
		codec: decodings, viewID: &viewToken{}, version: schema.GroupVersion{Group: "example.io", Version: "v1"},
		newFunc:      func() runtime.Object { return &unstructured.Unstructured{} },
		variantLocks: keymutex.NewHashed(variantLockCount),
	}
	view.identical = &variant{view: view.viewID}
	const objects = 100
	items := make([]Object, objects)
	for i := range items {
		items[i] = *newTestObject(t, fmt.Sprintf(`{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"w%d"}}`, i))
	}
	var lists sync.WaitGroup
	for range 8 {
		lists.Go(func() {
			for i := range items {
				if variant, err := view.getVariant(&items[i]); err != nil || variant.GetName() != fmt.Sprint("w", i) {
					t.Error(variant, err)
				}
			}
		})
	}
	lists.Wait()
	if n := decodings.decodes.Load(); n != objects {
		t.Errorf("%d objects were decoded %d times", objects, n)
	}
}

// countingCodec counts decoded objects.
type countingCodec struct {
	runtime.Codec
	decodes atomic.Int64
}

func (c *countingCodec) Decode(data []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	c.decodes.Add(1)
	return c.Codec.Decode(data, kind, into)
}

func newTestObject(t *testing.T, json string) *Object {
	t.Helper()
	o, err := NewObject([]byte(json), 7)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
