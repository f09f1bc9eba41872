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

// Shared shares equal parts of decoded objects among all logical clusters, by content: the controllers of a shard write
// the same managed fields and the same root certificates into every workspace. It holds weak references: an entry is
// removed with the last object that uses it, so its size depends on the distinct contents in the watch caches.
type Shared struct {
	texts  interned[byte]
	fields interned[metav1.FieldsV1]
}

// NewShared returns an empty Shared, for the storage of one shard.
func NewShared() *Shared {
	return &Shared{texts: interned[byte]{known: map[content]weak.Pointer[byte]{}}, fields: interned[metav1.FieldsV1]{known: map[content]weak.Pointer[metav1.FieldsV1]{}}}
}

// SharedTextSize is the minimum size of shared texts, in bytes: smaller ones do not justify an entry.
const SharedTextSize = 256

// text returns the shared text that equals the given one.
func (s *Shared) text(text string) string {
	first := s.texts.share(contentOf(text), unsafe.StringData(text), func(known *byte) bool { return unsafe.String(known, len(text)) == text })
	return unsafe.String(first, len(text))
}

// Copy returns the shared text that equals the given one. If there is none yet, it copies the given one, which may be
// part of a larger buffer that must not be retained.
func (s *Shared) Copy(text string) string {
	if first := s.texts.find(contentOf(text)); first != nil && unsafe.String(first, len(text)) == text {
		return unsafe.String(first, len(text))
	}
	return s.text(strings.Clone(text))
}

// Texts replaces the long values of a map by shared texts.
func (s *Shared) Texts(texts map[string]string) {
	for key, text := range texts {
		if len(text) >= SharedTextSize {
			texts[key] = s.text(text)
		}
	}
}

// managedFields returns the shared set of fields that equals the given one. Shared sets are immutable: stock code
// creates new sets, and copies references to old ones between versions of an object.
func (s *Shared) managedFields(set *metav1.FieldsV1) *metav1.FieldsV1 {
	return s.fields.share(contentOf(set.GetRawString()), set, func(known *metav1.FieldsV1) bool { return known.Equal(*set) })
}

// Metadata shares the metadata of an object that was just decoded and has no other references yet.
func (s *Shared) Metadata(obj metav1.Object) {
	s.Texts(obj.GetAnnotations())
	managed := obj.GetManagedFields()
	for i := range managed {
		if managed[i].FieldsV1 != nil {
			managed[i].FieldsV1 = s.managedFields(managed[i].FieldsV1)
		}
	}
}

// Codec returns a codec that shares the content of decoded objects: the metadata, and the texts that the given function
// returns for an object; it may return nil.
func (s *Shared) Codec(codec runtime.Codec, texts func(runtime.Object) map[string]string) runtime.Codec {
	return &sharingCodec{Codec: codec, shared: s, texts: texts}
}

type sharingCodec struct {
	runtime.Codec
	shared *Shared
	texts  func(runtime.Object) map[string]string
}

// Decode implements runtime.Decoder.
func (c *sharingCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if err != nil {
		return obj, kind, err
	}
	if accessor, err := meta.Accessor(obj); err == nil {
		c.shared.Metadata(accessor)
	}
	c.shared.Texts(c.texts(obj))
	return obj, kind, nil
}

// Sizes returns the number of shared texts and sets of fields.
func (s *Shared) Sizes() (texts, sets int) { return s.texts.size(), s.fields.size() }

// content is a hash of a content. Hashes may collide: callers must compare the content of an entry.
type content struct {
	hash uint64
	size int
}

var contentSeed = maphash.MakeSeed()

func contentOf(text string) content { return content{maphash.String(contentSeed, text), len(text)} }

// interned indexes values by content through weak pointers.
type interned[T any] struct {
	mu    sync.Mutex
	known map[content]weak.Pointer[T]
}

// share returns the value for this content, which is the given one if there was none.
func (s *interned[T]) share(of content, value *T, equal func(known *T) bool) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.known[of].Value(); first != nil {
		if equal(first) {
			return first
		}
		return value
	}
	pointer := weak.Make(value)
	s.known[of] = pointer
	goruntime.AddCleanup(value, func(gone weak.Pointer[T]) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.known[of] == gone { // unless an equal value was added since
			delete(s.known, of)
		}
	}, pointer)
	return value
}

// find returns the value for this content hash, or nil. Callers must compare its content.
func (s *interned[T]) find(of content) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[of].Value()
}

// size returns the number of values.
func (s *interned[T]) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}
