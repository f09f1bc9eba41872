package storage

import (
	"hash/maphash"
	goruntime "runtime"
	"strings"
	"sync"
	"unsafe"
	"weak"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Interner shares equal parts of decoded objects among all logical clusters, by content: the controllers of a shard write
// the same managed fields and the same root certificates into every workspace. It holds weak references: an entry is
// removed with the last object that uses it, so its size depends on the distinct contents in the watch caches.
type Interner struct {
	stringTable internTable[byte]
	fieldsTable internTable[metav1.FieldsV1]
}

// NewInterner returns an empty Interner, for the storage of one shard.
func NewInterner() *Interner {
	return &Interner{stringTable: internTable[byte]{values: map[contentHash]weak.Pointer[byte]{}}, fieldsTable: internTable[metav1.FieldsV1]{values: map[contentHash]weak.Pointer[metav1.FieldsV1]{}}}
}

// MinInternedSize is the minimum size of shared texts, in bytes: smaller ones do not justify an entry.
const MinInternedSize = 256

// internString returns the shared text that equals the given one.
func (in *Interner) internString(text string) string {
	interned := in.stringTable.intern(hashContent(text), unsafe.StringData(text), func(known *byte) bool { return unsafe.String(known, len(text)) == text })
	return unsafe.String(interned, len(text))
}

// InternCopy returns the shared text that equals the given one. If there is none yet, it copies the given one, which may be
// part of a larger buffer that must not be retained.
func (in *Interner) InternCopy(text string) string {
	if interned := in.stringTable.lookup(hashContent(text)); interned != nil && unsafe.String(interned, len(text)) == text {
		return unsafe.String(interned, len(text))
	}
	return in.internString(strings.Clone(text))
}

// InternValues replaces the long values of a map by shared texts.
func (in *Interner) InternValues(values map[string]string) {
	for key, text := range values {
		if len(text) >= MinInternedSize {
			values[key] = in.internString(text)
		}
	}
}

// internFields returns the shared set of fields that equals the given one. Shared sets are immutable: stock code
// creates new sets, and copies references to old ones between versions of an object.
func (in *Interner) internFields(set *metav1.FieldsV1) *metav1.FieldsV1 {
	return in.fieldsTable.intern(hashContent(set.GetRawString()), set, func(known *metav1.FieldsV1) bool { return known.Equal(*set) })
}

// InternMetadata shares the metadata of an object that was just decoded and has no other references yet.
func (in *Interner) InternMetadata(obj metav1.Object) {
	in.InternValues(obj.GetAnnotations())
	managed := obj.GetManagedFields()
	for i := range managed {
		if managed[i].FieldsV1 != nil {
			managed[i].FieldsV1 = in.internFields(managed[i].FieldsV1)
		}
	}
}

// Codec returns a codec that shares the content of decoded objects: the metadata, and the texts that the given function
// returns for an object; it may return nil.
func (in *Interner) Codec(codec runtime.Codec, stringsOf func(runtime.Object) map[string]string) runtime.Codec {
	return &interningCodec{Codec: codec, interner: in, stringsOf: stringsOf}
}

type interningCodec struct {
	runtime.Codec
	interner  *Interner
	stringsOf func(runtime.Object) map[string]string
}

// Decode implements runtime.Decoder.
func (c *interningCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if err != nil {
		return obj, kind, err
	}
	if accessor, err := meta.Accessor(obj); err == nil {
		c.interner.InternMetadata(accessor)
	}
	c.interner.InternValues(c.stringsOf(obj))
	return obj, kind, nil
}

// Sizes returns the number of shared texts and sets of fields.
func (in *Interner) Sizes() (texts, sets int) { return in.stringTable.size(), in.fieldsTable.size() }

// contentHash is a hash of a content. Hashes may collide: callers must compare the content of an entry.
type contentHash struct {
	hash uint64
	size int
}

var hashSeed = maphash.MakeSeed()

func hashContent(text string) contentHash {
	return contentHash{maphash.String(hashSeed, text), len(text)}
}

// internTable indexes values by content through weak pointers.
type internTable[T any] struct {
	mu     sync.Mutex
	values map[contentHash]weak.Pointer[T]
}

// intern returns the value for this content, which is the given one if there was none.
func (i *internTable[T]) intern(key contentHash, value *T, equal func(known *T) bool) *T {
	i.mu.Lock()
	defer i.mu.Unlock()
	if existing := i.values[key].Value(); existing != nil {
		if equal(existing) {
			return existing
		}
		return value
	}
	pointer := weak.Make(value)
	i.values[key] = pointer
	goruntime.AddCleanup(value, func(removed weak.Pointer[T]) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.values[key] == removed { // unless an equal value was added since
			delete(i.values, key)
		}
	}, pointer)
	return value
}

// lookup returns the value for this content hash, or nil. Callers must compare its content.
func (i *internTable[T]) lookup(key contentHash) *T {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.values[key].Value()
}

// size returns the number of values.
func (i *internTable[T]) size() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.values)
}
