package usage

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// memory returns the bytes that are reachable from a pointer through fields, elements and entries, each counted once. What functions
// refer to does not count.
func memory(pointer any) uintptr {
	return reachable(reflect.ValueOf(pointer), map[unsafe.Pointer]bool{})
}

// reachable returns the bytes that a value refers to, without those of the value itself.
func reachable(v reflect.Value, seen map[unsafe.Pointer]bool) (bytes uintptr) {
	isNew := func(p unsafe.Pointer) bool {
		before := seen[p]
		seen[p] = true
		return p != nil && !before
	}
	switch v.Kind() {
	case reflect.Pointer:
		if isNew(v.UnsafePointer()) {
			bytes = v.Type().Elem().Size() + reachable(v.Elem(), seen)
		}
	case reflect.Interface:
		if !v.IsNil() {
			bytes = v.Elem().Type().Size() + reachable(v.Elem(), seen)
		}
	case reflect.String:
		bytes = uintptr(v.Len())
	case reflect.Slice:
		if isNew(v.UnsafePointer()) {
			bytes = uintptr(v.Cap()) * v.Type().Elem().Size()
			for i := range v.Len() {
				bytes += reachable(v.Index(i), seen)
			}
		}
	case reflect.Map:
		if isNew(v.UnsafePointer()) {
			bytes = uintptr(v.Len()) * (v.Type().Key().Size() + v.Type().Elem().Size())
			for entries := v.MapRange(); entries.Next(); {
				bytes += reachable(entries.Key(), seen) + reachable(entries.Value(), seen)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			bytes += reachable(v.Field(i), seen)
		}
	case reflect.Array:
		for i := range v.Len() {
			bytes += reachable(v.Index(i), seen)
		}
	case reflect.Chan:
		bytes = uintptr(v.Cap()) * v.Type().Elem().Size()
	}
	return bytes
}

// TestMemory: an entry of a logical cluster counts, with all that it refers to.
func TestMemory(t *testing.T) {
	c := NewCounter("root", exists)
	empty := memory(c)
	c.clusters = map[logicalcluster.Name]*Counts{logicalcluster.MustParseName("abcd"): {}}
	entry := unsafe.Sizeof(logicalcluster.Name{}) + unsafe.Sizeof(&Counts{}) + unsafe.Sizeof(Counts{}) + uintptr(len("abcd"))
	if got := memory(c) - empty; got != entry {
		t.Errorf("an entry takes %d bytes, want %d", got, entry)
	}
}
