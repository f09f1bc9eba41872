package workspaces

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

func object(cluster, name, version string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "spec": spec}}
	u.SetAnnotations(map[string]string{"kcp.io/cluster": cluster})
	u.SetNamespace("default")
	u.SetName(name)
	u.SetResourceVersion(version)
	return u
}

// names indexes objects by name, independent of their cluster.
func names(object *unstructured.Unstructured) IndexKey { return NewIndexKey(object.GetName()) }

// newObjects returns the callbacks of a reflector, and the reported changes.
func newObjects() (*objects, *[]Change) {
	var changes []Change
	store := newStore(names)
	state := &connection{onConnect: func() {}, onDisconnect: func() {}}
	return &objects{connection: state, store: store, onChange: func(c Change) { changes = append(changes, c) }}, &changes
}

func (o *objects) list(listed ...*unstructured.Unstructured) {
	o.OnListStart()
	for _, u := range listed {
		o.OnListPage([]k8sruntime.Object{u})
	}
	o.OnListDone("")
}

func TestObjectsOfOneNameInTwoClustersAreDifferent(t *testing.T) {
	o, _ := newObjects()
	o.list(object("a", "one", "1", nil), object("b", "one", "2", nil))
	if keys := o.store.ByIndex(NewIndexKey("one")); len(keys) != 2 {
		t.Errorf("found %v", keys)
	}
	o.OnEvent(watch.Event{Type: watch.Deleted, Object: object("a", "one", "3", nil)}, "3")
	if o.store.Has(Key{"a", "default", "one"}) || !o.store.Has(Key{"b", "default", "one"}) || len(o.store.ByIndex(NewIndexKey("one"))) != 1 {
		t.Error("the wrong object is deleted")
	}
}

func TestStoredObjectsAreThoseOfTheServerWithoutManagedFields(t *testing.T) {
	o, _ := newObjects()
	original := object("a", "one", "1", map[string]any{"count": int64(3), "ratio": 0.5, "list": []any{"x", true, nil}, "text": "<&>"})
	want := original.DeepCopy()
	original.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationApply}})
	o.list(original)
	if diff := cmp.Diff(want.Object, o.store.Get(KeyOf(original)).Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if original.GetManagedFields() == nil {
		t.Error("the object of the caller has changed")
	}
}

func TestMetadataIsTrimmedInTheStoreAlone(t *testing.T) {
	o, _ := newObjects()
	o.store.trim = func(metadata map[string]any) { delete(metadata, "labels") }
	original := object("a", "one", "1", map[string]any{})
	want := original.DeepCopy()
	original.SetLabels(map[string]string{"a": "b"})
	o.list(original)
	if diff := cmp.Diff(want.Object, o.store.Get(KeyOf(original)).Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(original.GetLabels()) != 1 {
		t.Error("the object of the caller has changed")
	}
}

func TestOwnWritesAreVisibleAtOnce(t *testing.T) {
	o, _ := newObjects()
	key := Key{"a", "default", "one"}
	o.list(object("a", "one", "5", map[string]any{"v": "5"}))
	o.store.Wrote(object("a", "one", "9", map[string]any{"v": "9"}))
	o.OnEvent(watch.Event{Type: watch.Modified, Object: object("a", "one", "7", map[string]any{"v": "7"})}, "7") // older
	if v := o.store.Get(key).Object["spec"].(map[string]any)["v"]; v != "9" {
		t.Errorf("the store has version %v", v)
	}
	o.store.Wrote(object("a", "one", "9", map[string]any{"v": "completed"}))
	if v := o.store.Get(key).Object["spec"].(map[string]any)["v"]; v != "completed" {
		t.Errorf("of an object that the server completes, the store has %v", v)
	}
	released := object("a", "one", "10", nil)
	now := metav1.Now()
	released.SetDeletionTimestamp(&now)
	o.store.Wrote(released)
	if o.store.Has(key) {
		t.Error("an object without finalizers outlives its deletion")
	}
	o.store.Wrote(object("a", "one", "11", nil))
	if o.store.Has(key) {
		t.Error("a late answer to a write brings back an object")
	}
}

func TestChangesHaveTheIndexKeysBeforeAndAfter(t *testing.T) {
	o, changes := newObjects()
	one, two := object("a", "one", "1", nil), object("a", "two", "2", nil)
	o.list(one, two)
	o.list(one)
	key := func(name string) (Key, IndexKey) { return Key{"a", "default", name}, NewIndexKey(name) }
	keyOne, indexOne := key("one")
	keyTwo, indexTwo := key("two")
	want := []Change{
		{Key: keyOne, Index: indexOne}, {Key: keyTwo, Index: indexTwo},
		{Key: keyTwo, Before: indexTwo}, // the second list does not report unchanged objects
	}
	if !slices.Equal(*changes, want) {
		t.Errorf("got %+v, want %+v", *changes, want)
	}
}

// An object and its copy together have to stay far below 20 KiB.
func TestMemoryOfAnObject(t *testing.T) {
	const count, limit = 5000, 6 << 10
	o, _ := newObjects()
	spec := map[string]any{}
	for n := range 40 {
		spec[fmt.Sprintf("field%d", n)] = map[string]any{"name": "a value of some length", "count": int64(n)}
	}
	before := heap()
	for n := range count {
		u := object("a-logical-cluster", fmt.Sprintf("object-%d", n), "1", spec)
		o.OnEvent(watch.Event{Type: watch.Added, Object: u}, "1")
	}
	if each := (heap() - before) / count; each > limit {
		t.Errorf("an object takes %d bytes, want at most %d", each, limit)
	}
	runtime.KeepAlive(o)
}

func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// The store finds objects by their clusters and namespaces, and retains no entries of deleted ones.
func TestObjectsOfNamespaces(t *testing.T) {
	o, _ := newObjects()
	elsewhere := object("a", "two", "2", nil)
	elsewhere.SetNamespace("other")
	o.list(object("a", "one", "1", nil), elsewhere, object("b", "one", "3", nil))
	o.OnEvent(watch.Event{Type: watch.Modified, Object: object("a", "one", "4", nil)}, "4")
	if got, want := o.store.InNamespace("a", "default"), []Key{{"a", "default", "one"}}; !slices.Equal(got, want) {
		t.Errorf("in the namespace are %v, want %v", got, want)
	}
	if got := o.store.InCluster("a"); len(got) != 2 || len(o.store.InCluster("c")) != 0 {
		t.Errorf("in the cluster are %v", got)
	}
	o.list()
	if len(o.store.namespaces) != 0 {
		t.Errorf("an empty store has %v", o.store.namespaces)
	}
}
