package replica

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
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

// schemas are the definitions in system:bound-crds.
type schemas map[types.UID]*crdregistry.CompiledCRD

func (s schemas) Acquire(context.Context, schema.GroupResource, bool) (*crdregistry.Lease, error) {
	return nil, nil
}

func (s schemas) CompileFor(_ context.Context, _ schema.GroupResource, uid types.UID, _ *crdstorage.Storage, _ *crdstorage.Publication) (*crdregistry.CompiledCRD, error) {
	s[uid] = &crdregistry.CompiledCRD{}
	return s[uid], nil
}

func (s schemas) IsCurrent(uid types.UID, _ *crdregistry.CompiledCRD) bool { return s[uid] != nil }

// TestCompiledDefinitionsAreRemoved: a definition is compiled once, and removed with its schema, the definition of its publisher,
// or the storage.
func TestCompiledDefinitionsAreRemoved(t *testing.T) {
	known, key := schemas{}, storageKey{schema.GroupResource{Group: "example.io", Resource: "widgets"}, identity}
	store := NewStore(nil, known)
	opened := store.addStorage(key, nil, func() {})
	get := func(of definitionKey) *crdregistry.CompiledCRD {
		t.Helper()
		compiled, err := store.getCompiled(t.Context(), opened, key, of)
		if err != nil {
			t.Fatal(err)
		}
		return compiled
	}
	kept, first := get(definitionKey{schema: "kept"}), get(definitionKey{schema: "replaced"})
	if get(definitionKey{schema: "kept"}) != kept {
		t.Error("it was compiled twice")
	}
	delete(known, "replaced")
	if second := get(definitionKey{schema: "replaced"}); second == first || !first.IsClosed() {
		t.Error("a request uses a stale definition, or leaves it open")
	}
	publisher := &crdregistry.CompiledCRD{}
	converting := &crdregistry.CompiledCRD{}
	opened.compiled[definitionKey{"kept", publisher, "v1"}] = converting
	publisher.Close()
	delete(known, "replaced")
	store.closeIdle(time.Now())
	if len(opened.compiled) != 1 || !converting.IsClosed() || opened.compiled[definitionKey{schema: "kept"}] != kept {
		t.Errorf("these are left: %v", opened.compiled)
	}
	opened.users = 0
	store.closeIdle(time.Now().Add(idleTimeout))
	if len(store.storages) != 0 || !kept.IsClosed() {
		t.Errorf("%d storages are open", len(store.storages))
	}
}
