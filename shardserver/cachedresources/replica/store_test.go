package replica

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAddStorageAfterClose(t *testing.T) {
	store, key := NewStore(nil, nil), storageKey{schema.GroupResource{Group: "example.io", Resource: "widgets"}, identity}
	released := 0
	if store.addStorage(key, nil, func() { released++ }) == nil {
		t.Fatal("the storage was not registered while the store is open")
	}
	store.Close()
	if released != 1 {
		t.Errorf("released %d times", released)
	}
	if store.addStorage(key, nil, func() {}) != nil || len(store.storages) != 0 {
		t.Error("the storage was registered in a closed store")
	}
	if _, _, err := store.acquire(key); err == nil {
		t.Error("a closed store opens storages")
	}
}
