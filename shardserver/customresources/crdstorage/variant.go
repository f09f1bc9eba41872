package crdstorage

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// viewID identifies one view. Variants refer to it rather than to the view, so that they do not keep the view in memory.
type viewID struct{ closed atomic.Bool }

// variant is a stored object as decoded, converted and defaulted by one view. Objects cache a few variants, so that this
// happens once per object and view, not per read.
type variant struct {
	view *viewID
	// stored is the object as served by the view; nil if it equals the stored object.
	stored *stored
	next   *variant
}

// maxVariants bounds the cached variants of an object. More views read the same object only if its definition serves more
// versions; they decode it again.
const maxVariants = 4

// variant returns the cached variant of a view, or nil.
func (s *stored) variant(view *viewID) *variant {
	for f := s.variants.Load(); f != nil; f = f.next {
		if f.view == view {
			return f
		}
	}
	return nil
}

// addVariant caches a variant, and removes those of closed views and the oldest ones.
func (s *stored) addVariant(f *variant) {
	for {
		known := s.variants.Load()
		if known == nil {
			if s.variants.CompareAndSwap(nil, f) {
				return
			}
			continue
		}
		chain := &variant{view: f.view, stored: f.stored}
		last := chain
		for old, kept := known, 1; old != nil && kept < maxVariants; old = old.next {
			if old.view != f.view && !old.view.closed.Load() {
				last.next = &variant{view: old.view, stored: old.stored}
				last, kept = last.next, kept+1
			}
		}
		if s.variants.CompareAndSwap(known, chain) {
			return
		}
	}
}

// variant returns the object as served by the view, which is the object itself if decoding and encoding it changes
// nothing. Errors are those of the upstream storage for objects that cannot be decoded or converted.
func (v *View) variant(obj *Object) (*Object, error) {
	s := obj.stored
	if s == nil {
		return obj, nil
	}
	f := s.variant(v.viewID)
	if f == nil {
		var err error
		if f, err = v.computeVariant(obj); err != nil {
			return nil, err
		}
	}
	if f.stored == nil {
		return obj, nil
	}
	return &Object{stored: f.stored, resourceVersion: obj.resourceVersion}, nil
}

// computeVariant computes the variant of an object and caches it. If that needs no webhook, concurrent calls for one object
// compute it once.
func (v *View) computeVariant(obj *Object) (*variant, error) {
	s := obj.stored
	if obj.GroupVersionKind().GroupVersion() == v.version {
		lock := v.variantLocks.of(s)
		lock.Lock()
		defer lock.Unlock()
		if f := s.variant(v.viewID); f != nil {
			return f, nil
		}
	}
	converted, err := v.convert(s)
	if err != nil {
		return nil, err
	}
	f := v.identical
	if converted != s {
		f = &variant{view: v.viewID, stored: converted}
		converted.addVariant(v.identical) // converting and defaulting it again could give another result
	}
	s.addVariant(f)
	return f, nil
}

// variantLocks serialize the computation of variants, each lock for many objects.
type variantLocks [16]sync.Mutex

func (c *variantLocks) of(s *stored) *sync.Mutex {
	return &c[maphash.Comparable(lockSeed, s)%uint64(len(c))]
}

var lockSeed = maphash.MakeSeed()

// convert decodes an object into the version of the view and encodes it. It returns the same pointer if nothing changes.
func (v *View) convert(s *stored) (*stored, error) {
	into := v.newFunc()
	text := s.text()
	if err := v.decodeConverted(s, into); err != nil {
		return nil, err
	}
	obj, ok := into.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a custom resource cannot be a %T", into)
	}
	data, err := runtime.Encode(unstructured.UnstructuredJSONScheme, obj)
	if err != nil {
		return nil, err
	}
	if len(data) == len(text)+1 && string(data[:len(text)]) == text { // followed by a newline
		return s, nil
	}
	return parse(data)
}

// bytesOf returns the bytes of a string without a copy, for decoders, which do not modify them.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }
