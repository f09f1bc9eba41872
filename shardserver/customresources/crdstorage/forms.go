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

// identity stands for one view. Objects point at it rather than at the view, so that they keep no view alive.
type identity struct{ closed atomic.Bool }

// form is what a stored object looks like through one view. Objects keep the few forms in which they were asked for:
// verifying, converting and defaulting happen once per object and view, not per read.
type form struct {
	of *identity
	// stored is the object as a client of the view sees it; nil if that is the object as it stands.
	stored *stored
	next   *form
}

// maxForms bounds how many forms an object keeps. More views than that read the same object only if its definition
// serves more versions, and then they compute again.
const maxForms = 4

// form returns the form that the object was found to have in a view before.
func (s *stored) form(of *identity) *form {
	for f := s.forms.Load(); f != nil; f = f.next {
		if f.of == of {
			return f
		}
	}
	return nil
}

// remember keeps a form, and drops those of closed views and the oldest ones.
func (s *stored) remember(f *form) {
	for {
		known := s.forms.Load()
		if known == nil {
			if s.forms.CompareAndSwap(nil, f) {
				return
			}
			continue
		}
		chain := &form{of: f.of, stored: f.stored}
		last := chain
		for old, kept := known, 1; old != nil && kept < maxForms; old = old.next {
			if old.of != f.of && !old.of.closed.Load() {
				last.next = &form{of: old.of, stored: old.stored}
				last, kept = last.next, kept+1
			}
		}
		if s.forms.CompareAndSwap(known, chain) {
			return
		}
	}
}

// form returns the object as clients of the view see it: the object itself where decoding and encoding it again
// changes nothing, else what comes of that. Errors are those of the stock storage for an object that cannot be
// decoded or converted.
func (v *View) form(obj *Object) (*Object, error) {
	s := obj.stored
	if s == nil {
		return obj, nil
	}
	f := s.form(v.identity)
	if f == nil {
		var err error
		if f, err = v.compute(obj); err != nil {
			return nil, err
		}
	}
	if f.stored == nil {
		return obj, nil
	}
	return &Object{stored: f.stored, resourceVersion: obj.resourceVersion}, nil
}

// compute finds out the form of an object and remembers it. Where no webhook is asked, lists that come upon the same object
// at the same time wait for the first of them rather than do it all.
func (v *View) compute(obj *Object) (*form, error) {
	s := obj.stored
	if obj.GroupVersionKind().GroupVersion() == v.version {
		lock := v.computing.of(s)
		lock.Lock()
		defer lock.Unlock()
		if f := s.form(v.identity); f != nil {
			return f, nil
		}
	}
	converted, err := v.convert(s)
	if err != nil {
		return nil, err
	}
	f := v.asIs
	if converted != s {
		f = &form{of: v.identity, stored: converted}
		converted.remember(v.asIs) // converting and defaulting it once more would not be the same
	}
	s.remember(f)
	return f, nil
}

// computing are locks for objects whose form is computed, each for many of them.
type computing [16]sync.Mutex

func (c *computing) of(s *stored) *sync.Mutex {
	return &c[maphash.Comparable(computingSeed, s)%uint64(len(c))]
}

var computingSeed = maphash.MakeSeed()

// convert decodes into the version of the view and encodes that. It returns the same pointer if nothing changed.
func (v *View) convert(s *stored) (*stored, error) {
	into := v.newFunc()
	text := s.text()
	if err := v.decodeFully(s, into); err != nil {
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
	if len(data) == len(text)+1 && string(data[:len(text)]) == text { // one newline at the end
		return s, nil
	}
	return parse(data)
}

// bytesOf shares the memory of text with a decoder, which only reads it.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }
