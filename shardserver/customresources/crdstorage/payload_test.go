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

	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// sameWhenShared checks that an object whose body was taken out cannot be told from the whole one.
func sameWhenShared(t *testing.T, shared, whole *Object) {
	t.Helper()
	for _, version := range []uint64{0, 7} {
		shared, whole := &Object{stored: shared.stored, resourceVersion: version}, &Object{stored: whole.stored, resourceVersion: version}
		if got, want := string(shared.append(nil)), string(whole.append(nil)); got != want {
			t.Fatalf("shared, it is written as %q, else as %q", got, want)
		}
		if shared.size() < len(whole.append(nil)) {
			t.Fatalf("%q is larger than %d", whole.JSON(), shared.size())
		}
	}
	head, payload, tail := shared.stored.parts()
	if shared.JSON() != whole.JSON() || head+payload+tail != whole.JSON() {
		t.Fatalf("shared, it is %q, %q, else %q", shared.JSON(), []string{head, payload, tail}, whole.JSON())
	}
	got, want := meta.AsPartialObjectMetadata(shared), meta.AsPartialObjectMetadata(whole)
	if !reflect.DeepEqual(got, want) || shared.GroupVersionKind() != whole.GroupVersionKind() || shared.LogicalCluster() != whole.LogicalCluster() {
		t.Fatalf("shared, its metadata is %v, else %v", got, want)
	}
}

// large is a value of 400 bytes.
var large = `{"text":"` + strings.Repeat("{,0}", 100) + `"}`

func TestABodyIsOnlyTakenOutWhereItIsLarge(t *testing.T) {
	for name, tc := range map[string]struct {
		json  string
		split bool
	}{
		"behind the metadata":           {`{"apiVersion":"v1","kind":"Widget","metadata":{"name":"w"},"spec":` + large + `,"status":{}}`, true},
		"in front of the metadata":      {`{"data":` + large + `,"metadata":{"name":"w","labels":{"a":"b"}}}`, true},
		"without metadata":              {`{"kind":"Widget","spec":` + large + `}`, true},
		"with white space around":       {`{"metadata" : { "name" : "w" } , "spec" : ` + large + ` }`, true},
		"under a key without letters":   {`{"metadata":{"name":"w"},"":` + large + `}`, true},
		"a list":                        {`{"metadata":{"name":"w"},"items":[` + large + `]}`, true},
		"the larger of two":             {`{"metadata":{"name":"w"},"spec":` + large + `,"status":[` + large + `]}`, true},
		"metadata that is large itself": {`{"metadata":{"name":"w","annotations":` + large + `},"spec":{}}`, false},
		"a kind that is large":          {`{"kind":` + large + `,"apiVersion":` + large + `,"metadata":{"name":"w"}}`, false},
		"nothing at all":                {`{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			whole, shared := object(t, tc.json), object(t, tc.json)
			shared.sharePayload(clusterstorage.NewShared(), clusterstorage.SharedTextSize)
			if split := shared.stored.payload != ""; split != tc.split {
				t.Errorf("the body is %q", shared.stored.payload)
			}
			sameWhenShared(t, shared, whole)
		})
	}
}

func TestEqualBodiesAreHeldOnce(t *testing.T) {
	payloads := clusterstorage.NewShared()
	one := object(t, `{"metadata":{"name":"one"},"spec":`+large+`}`)
	other := object(t, `{"metadata":{"name":"other"},"spec":`+large+`}`)
	third := object(t, `{"metadata":{"name":"third"},"spec":[`+large+`]}`)
	for _, o := range []*Object{one, other, third} {
		o.sharePayload(payloads, clusterstorage.SharedTextSize)
		o.sharePayload(payloads, clusterstorage.SharedTextSize) // which is nothing more
	}
	if unsafe.StringData(one.stored.payload) != unsafe.StringData(other.stored.payload) {
		t.Error("two objects have a body of their own")
	}
	if third.stored.payload == one.stored.payload || third.GetName() != "third" || !strings.Contains(third.JSON(), `"spec":[`+large) {
		t.Errorf("the third is %s", third.JSON())
	}
}

func TestAFormIsComputedOnceWhoeverAsksForIt(t *testing.T) {
	decodings := &countingCodec{Codec: unstructured.UnstructuredJSONScheme}
	view := &View{
		codec: decodings, viewID: &viewID{}, version: schema.GroupVersion{Group: "example.io", Version: "v1"},
		newFunc: func() runtime.Object { return &unstructured.Unstructured{} },
	}
	view.identical = &variant{view: view.viewID}
	const objects = 100
	items := make([]Object, objects)
	for i := range items {
		items[i] = *object(t, fmt.Sprintf(`{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"w%d"}}`, i))
	}
	var lists sync.WaitGroup
	for range 8 {
		lists.Go(func() {
			for i := range items {
				if variant, err := view.variant(&items[i]); err != nil || variant.GetName() != fmt.Sprint("w", i) {
					t.Error(variant, err)
				}
			}
		})
	}
	lists.Wait()
	if n := decodings.n.Load(); n != objects {
		t.Errorf("%d objects were decoded %d times", objects, n)
	}
}

// countingCodec counts what is decoded.
type countingCodec struct {
	runtime.Codec
	n atomic.Int64
}

func (c *countingCodec) Decode(data []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	c.n.Add(1)
	return c.Codec.Decode(data, kind, into)
}

func object(t *testing.T, json string) *Object {
	t.Helper()
	o, err := NewObject([]byte(json), 7)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
