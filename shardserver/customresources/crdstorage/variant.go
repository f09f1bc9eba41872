package crdstorage

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// viewToken identifies one view. Variants refer to it rather than to the view, so that they do not keep the view in memory.
type viewToken struct{ closed atomic.Bool }

// variant is a stored object as decoded, converted and defaulted by one view. Objects cache a few variants, so that this
// happens once per object and view, not per read.
type variant struct {
	view *viewToken
	// stored is the object as served by the view; nil if it equals the stored object.
	stored *storedObject
	next   *variant
}

// variantLockCount is the number of locks of a view, each for the objects whose UIDs have the same hash.
const variantLockCount = 16

// maxVariants bounds the cached variants of an object. More views read the same object only if its definition serves more
// versions; they decode it again.
const maxVariants = 4

// findVariant returns the cached variant of a view, or nil.
func (s *storedObject) findVariant(view *viewToken) *variant {
	for f := s.variants.Load(); f != nil; f = f.next {
		if f.view == view {
			return f
		}
	}
	return nil
}

// addVariant caches a variant, and removes those of closed views and the oldest ones.
func (s *storedObject) addVariant(f *variant) {
	for {
		current := s.variants.Load()
		if current == nil {
			if s.variants.CompareAndSwap(nil, f) {
				return
			}
			continue
		}
		chain := &variant{view: f.view, stored: f.stored}
		last := chain
		for old, count := current, 1; old != nil && count < maxVariants; old = old.next {
			if old.view != f.view && !old.view.closed.Load() {
				last.next = &variant{view: old.view, stored: old.stored}
				last, count = last.next, count+1
			}
		}
		if s.variants.CompareAndSwap(current, chain) {
			return
		}
	}
}

// getVariant returns the object as served by the view, which is the object itself if decoding and encoding it changes
// nothing. Errors are those of the upstream storage for objects that cannot be decoded or converted.
func (v *View) getVariant(obj *Object) (*Object, error) {
	s := obj.stored
	if s == nil {
		return obj, nil
	}
	f := s.findVariant(v.viewID)
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
		v.variantLocks.LockKey(s.uid)
		defer func() { _ = v.variantLocks.UnlockKey(s.uid) }() // never fails
		if f := s.findVariant(v.viewID); f != nil {
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

// convert decodes an object into the version of the view and encodes it. It returns the same pointer if nothing changes.
func (v *View) convert(s *storedObject) (*storedObject, error) {
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
	return parseObject(data)
}

// unsafeBytes returns the bytes of a string without a copy, for decoders, which do not modify them.
func unsafeBytes(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }
