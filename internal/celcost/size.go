package celcost

import (
	"math"
	"reflect"
	"unsafe"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// maxDepth bounds the recursion of a measurement. It is the maximum depth of the JSON decoder.
const maxDepth = 10000

// Size returns the deep size of a value, at most limit + 1: one for the value and each value in it, as often as it is
// reached, and a tenth for each byte of strings. The time that it takes is proportional to the result.
func Size(value ref.Val, limit uint64) uint64 {
	m := measurement{limit: limit}
	m.add(value, 0)
	return min(m.size, limit+1)
}

// measurement adds up sizes until they exceed the limit.
type measurement struct{ size, limit uint64 }

func (m *measurement) exceeded() bool { return m.size > m.limit }

func (m *measurement) add(value ref.Val, depth int) {
	m.size++
	if depth > maxDepth {
		m.size = math.MaxUint64
	}
	if m.exceeded() {
		return
	}
	switch v := value.(type) {
	case types.String:
		m.addBytes(len(v))
	case types.Bytes:
		m.addBytes(len(v))
	case *types.Optional:
		if v.HasValue() {
			m.add(v.GetValue(), depth+1)
		}
	case *mutation.JSONPatchVal:
		m.addBytes(len(v.Op) + len(v.Path) + len(v.From))
		if v.Val != nil {
			m.add(v.Val, depth+1)
		}
	case *dynamic.ObjectVal:
		for name, field := range fieldsOf(v) {
			m.addBytes(len(name))
			m.add(field, depth+1)
			if m.exceeded() {
				return
			}
		}
	case traits.Mapper:
		m.addEntries(v, depth)
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && !m.exceeded(); {
			m.add(it.Next(), depth+1)
		}
	}
}

func (m *measurement) addEntries(value traits.Mapper, depth int) {
	for it := value.Iterator(); it.HasNext() == types.True && !m.exceeded(); {
		key := it.Next()
		m.add(key, depth+1)
		if element, found := value.Find(key); found {
			m.add(element, depth+1)
		}
	}
}

func (m *measurement) addBytes(n int) { m.size = sum(m.size, traversal(uint64(n))) }

// traversal returns the cost of reading n bytes, which the libraries also use.
func traversal(n uint64) uint64 {
	return uint64(math.Ceil(float64(n) * common.StringTraversalCostFactor))
}

// fieldsOf returns the fields of an object of a mutation. The type exports them only as a copy in native types, whose size is unknown.
func fieldsOf(object *dynamic.ObjectVal) map[string]ref.Val {
	field := reflect.ValueOf(object).Elem().FieldByName("fields")
	return *(*map[string]ref.Val)(unsafe.Pointer(field.UnsafeAddr()))
}

// shallow returns the number of elements, or bytes, of a value; 1 for others.
func shallow(value ref.Val) uint64 {
	if sizer, ok := value.(traits.Sizer); ok {
		if size, ok := sizer.Size().(types.Int); ok {
			return uint64(size)
		}
	}
	return 1
}

// isContainer reports whether a value contains others.
func isContainer(value ref.Val) bool {
	switch value.(type) {
	case traits.Lister, traits.Mapper, *types.Optional, *dynamic.ObjectVal, *mutation.JSONPatchVal:
		return true
	}
	return false
}

// sum and product saturate.
func sum(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func product(a, b uint64) uint64 {
	if b != 0 && a > math.MaxUint64/b {
		return math.MaxUint64
	}
	return a * b
}
