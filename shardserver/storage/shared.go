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

// Shared holds what the decoded objects of all logical clusters have in common, by content: the controllers of a shard
// write the same managed fields and the same root certificates into every workspace. It keeps nothing alive: an entry
// goes with the last object that uses it, so its size follows the distinct contents in the watch caches.
type Shared struct {
	texts  interned[byte]
	fields interned[metav1.FieldsV1]
}

// NewShared returns what the storage of one shard shares.
func NewShared() *Shared {
	return &Shared{texts: interned[byte]{known: map[content]weak.Pointer[byte]{}}, fields: interned[metav1.FieldsV1]{known: map[content]weak.Pointer[metav1.FieldsV1]{}}}
}

// SharedTextSize is from where on a text is worth an entry, in bytes.
const SharedTextSize = 256

// text returns the text that stands for all equal ones.
func (s *Shared) text(text string) string {
	first := s.texts.share(contentOf(text), unsafe.StringData(text), func(known *byte) bool { return unsafe.String(known, len(text)) == text })
	return unsafe.String(first, len(text))
}

// Copy returns the text that stands for all equal ones. If there is none yet, that is a copy, which keeps nothing alive
// that the given one is a part of.
func (s *Shared) Copy(text string) string {
	if first := s.texts.find(contentOf(text)); first != nil && unsafe.String(first, len(text)) == text {
		return unsafe.String(first, len(text))
	}
	return s.text(strings.Clone(text))
}

// Texts replaces the long values of a map by the texts that stand for them.
func (s *Shared) Texts(texts map[string]string) {
	for key, text := range texts {
		if len(text) >= SharedTextSize {
			texts[key] = s.text(text)
		}
	}
}

// managedFields returns the set of fields that stands for all equal ones. Nobody writes into one: stock code makes a new
// one, and hands old ones from one version of an object to the next.
func (s *Shared) managedFields(set *metav1.FieldsV1) *metav1.FieldsV1 {
	return s.fields.share(contentOf(set.GetRawString()), set, func(known *metav1.FieldsV1) bool { return known.Equal(*set) })
}

// Metadata shares what an object that was just decoded, and is nobody else's yet, says of itself.
func (s *Shared) Metadata(obj metav1.Object) {
	s.Texts(obj.GetAnnotations())
	managed := obj.GetManagedFields()
	for i := range managed {
		if managed[i].FieldsV1 != nil {
			managed[i].FieldsV1 = s.managedFields(managed[i].FieldsV1)
		}
	}
}

// Codec makes a storage's codec share what it decodes. Besides the metadata those are the texts that the given function
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

// Sizes returns how many texts and sets of fields are shared now.
func (s *Shared) Sizes() (texts, sets int) { return s.texts.size(), s.fields.size() }

// content identifies a content almost certainly; whoever finds an entry by it compares.
type content struct {
	hash uint64
	size int
}

var contentSeed = maphash.MakeSeed()

func contentOf(text string) content { return content{maphash.String(contentSeed, text), len(text)} }

// interned finds values by content as long as somebody uses them.
type interned[T any] struct {
	mu    sync.Mutex
	known map[content]weak.Pointer[T]
}

// share returns the value that stands for all with this content, which is the given one if it is the first.
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
		if s.known[of] == gone { // an equal one may have come since
			delete(s.known, of)
		}
	}, pointer)
	return value
}

// find returns the value that almost certainly has this content, nil if there is none.
func (s *interned[T]) find(of content) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[of].Value()
}

// size returns how many values are shared now.
func (s *interned[T]) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}
