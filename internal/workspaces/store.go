package workspaces

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Key identifies an object. Cluster is empty on the service cluster.
type Key struct{ Cluster, Namespace, Name string }

// KeyOf returns the key of an object.
func KeyOf(object *unstructured.Unstructured) Key {
	return Key{logicalcluster.Of(object).String(), object.GetNamespace(), object.GetName()}
}

// IndexKey is a secondary key by which the store finds objects. The zero value is none.
type IndexKey [16]byte

// NewIndexKey returns the index key of some values.
func NewIndexKey(values ...string) IndexKey {
	h := sha256.New()
	for _, value := range values {
		h.Write(binary.AppendUvarint(nil, uint64(len(value))))
		h.Write([]byte(value))
	}
	return IndexKey(h.Sum(nil)[:len(IndexKey{})])
}

// Index computes the index key of an object.
type Index func(object *unstructured.Unstructured) IndexKey

// Store contains the objects of an informer. It is safe for concurrent use.
type Store struct {
	index Index
	trim  func(metadata map[string]any) // nil: only managed fields are removed

	mu      sync.RWMutex
	objects map[Key]*entry
	indexed map[IndexKey][]Key
	// namespaces contains the names of the objects by cluster and namespace; empty maps are removed.
	namespaces map[string]map[string]map[string]struct{}
}

type entry struct {
	resourceVersion string
	encoded         []byte
	index           IndexKey
}

func newStore(index Index) *Store {
	return &Store{index: index, objects: map[Key]*entry{}, indexed: map[IndexKey][]Key{}, namespaces: map[string]map[string]map[string]struct{}{}}
}

// Get returns an object, or nil.
func (s *Store) Get(key Key) *unstructured.Unstructured {
	s.mu.RLock()
	found := s.objects[key]
	s.mu.RUnlock()
	if found == nil {
		return nil
	}
	return found.decode()
}

// Has reports whether the store contains an object.
func (s *Store) Has(key Key) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[key] != nil
}

// Encoded returns the JSON of an object, or nil. Callers must not modify it.
func (s *Store) Encoded(key Key) []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if found := s.objects[key]; found != nil {
		return found.encoded
	}
	return nil
}

// Keys returns the keys of all objects.
func (s *Store) Keys() []Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.objects))
}

// InNamespace returns the keys of the objects in a namespace of a cluster.
func (s *Store) InNamespace(cluster, namespace string) []Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var keys []Key
	for name := range s.namespaces[cluster][namespace] {
		keys = append(keys, Key{cluster, namespace, name})
	}
	return keys
}

// InCluster returns the keys of the objects in a cluster.
func (s *Store) InCluster(cluster string) []Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var keys []Key
	for namespace, names := range s.namespaces[cluster] {
		for name := range names {
			keys = append(keys, Key{cluster, namespace, name})
		}
	}
	return keys
}

// ByIndex returns the keys of the objects with an index key.
func (s *Store) ByIndex(key IndexKey) []Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.indexed[key])
}

// HasIndex reports whether an object has an index key.
func (s *Store) HasIndex(key IndexKey) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.indexed[key]) > 0
}

// IndexOf returns the index key of an object.
func (s *Store) IndexOf(key Key) IndexKey {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if found := s.objects[key]; found != nil {
		return found.index
	}
	return IndexKey{}
}

// Len returns the number of objects.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects)
}

// Wrote stores the response of the server to a write before the watch does, so that readers see their own writes. The same version
// replaces the stored one, because a server defaults objects with the current schema of their kind. It ignores objects that the store
// does not have, because the watch may already have deleted them.
func (s *Store) Wrote(object *unstructured.Unstructured) {
	key := KeyOf(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[key]
	if before == nil {
		return
	}
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		s.remove(key) // the server deletes it with this write
		return
	}
	if before.resourceVersion == object.GetResourceVersion() {
		s.set(key, object)
		return
	}
	s.setNewer(key, object)
}

// setNewer stores an object unless the store already has it or a newer version of it, and reports whether it did.
func (s *Store) setNewer(key Key, object *unstructured.Unstructured) bool {
	before := s.objects[key]
	if before != nil && !isNewer(object.GetResourceVersion(), before.resourceVersion) {
		return false
	}
	s.set(key, object)
	return true
}

func (s *Store) set(key Key, object *unstructured.Unstructured) {
	e, err := encode(object, s.trim)
	if err != nil {
		panic(fmt.Sprintf("encoding %s: %v", key, err)) // it has been decoded from JSON
	}
	s.removeFromIndex(key)
	if e.index = s.index(object); e.index != (IndexKey{}) {
		s.indexed[e.index] = append(s.indexed[e.index], key)
	}
	if s.objects[key] == nil {
		s.addToNamespace(key)
	}
	s.objects[key] = e
}

func (s *Store) remove(key Key) {
	s.removeFromIndex(key)
	s.removeFromNamespace(key)
	delete(s.objects, key)
}

func (s *Store) addToNamespace(key Key) {
	namespaces := s.namespaces[key.Cluster]
	if namespaces == nil {
		namespaces = map[string]map[string]struct{}{}
		s.namespaces[key.Cluster] = namespaces
	}
	if namespaces[key.Namespace] == nil {
		namespaces[key.Namespace] = map[string]struct{}{}
	}
	namespaces[key.Namespace][key.Name] = struct{}{}
}

func (s *Store) removeFromNamespace(key Key) {
	namespaces := s.namespaces[key.Cluster]
	delete(namespaces[key.Namespace], key.Name)
	if len(namespaces[key.Namespace]) == 0 {
		delete(namespaces, key.Namespace)
	}
	if len(namespaces) == 0 {
		delete(s.namespaces, key.Cluster)
	}
}

func (s *Store) removeFromIndex(key Key) {
	e := s.objects[key]
	if e == nil || e.index == (IndexKey{}) {
		return
	}
	left := slices.DeleteFunc(s.indexed[e.index], func(k Key) bool { return k == key })
	if len(left) == 0 {
		delete(s.indexed, e.index)
		return
	}
	s.indexed[e.index] = left
}

// isNewer compares resource versions of one object. Versions that are not comparable count as newer: the server decides.
func isNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}

// encode encodes an object without the fields that are never read. It does not modify the object.
func encode(object *unstructured.Unstructured, trim func(metadata map[string]any)) (*entry, error) {
	if metadata, ok := object.Object["metadata"].(map[string]any); ok && (trim != nil || object.GetManagedFields() != nil) {
		metadata = maps.Clone(metadata)
		delete(metadata, "managedFields")
		if trim != nil {
			trim(metadata)
		}
		object = &unstructured.Unstructured{Object: maps.Clone(object.Object)}
		object.Object["metadata"] = metadata
	}
	encoded, err := json.Marshal(object.Object)
	return &entry{resourceVersion: object.GetResourceVersion(), encoded: slices.Clip(encoded)}, err
}

func (e *entry) decode() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(e.encoded); err != nil {
		panic(fmt.Sprintf("decoding an object of the store: %v", err)) // encode has written it
	}
	return object
}

// String returns the key for messages.
func (k Key) String() string {
	return strings.TrimLeft(strings.Join([]string{k.Cluster, k.Namespace, k.Name}, "/"), "/")
}

// Compare orders keys.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Cluster, other.Cluster), cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}
