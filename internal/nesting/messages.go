package nesting

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// messages are the descriptors of the Go types whose generated code decodes protobuf. They are derived from the tags of the
// fields, from which that code is generated. Each type is described once, when it is decoded for the first time.
type messages struct {
	mu    sync.Mutex
	known map[reflect.Type]*message
}

// message describes a protobuf message: its fields by number. Other fields are skipped, as generated code does.
type message struct{ fields map[int32]*field }

// fieldKind is how generated code reads the value of a field.
type fieldKind int

const (
	scalarField  fieldKind = iota // a number, string, bytes, or a list of them
	messageField                  // calls the decoder of a message
	mapField                      // reads entries, each with a key and a value
	jsonField                     // bytes that contain JSON, which other code decodes later
)

type field struct {
	kind fieldKind
	// levels is how many levels of JSON the field adds to those of the message.
	levels int
	// message is the type of a messageField, or of the values of a mapField; nil for values of another type.
	message *message
	// valueLevels is how many levels a value of a mapField adds to that of the map, and isNumber set if it has no length.
	valueLevels int
	isNumber    bool
}

// of returns the descriptor of a struct type, or of a pointer to it. It is nil for a type without protobuf.
func (m *messages) of(t reflect.Type) *message {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[reflect.Type]*message{}
	}
	return m.describe(t)
}

var (
	unmarshalerType     = reflect.TypeFor[interface{ Unmarshal([]byte) error }]()
	jsonMarshalerType   = reflect.TypeFor[json.Marshaler]()
	managedFieldsType   = reflect.TypeFor[metav1.FieldsV1]()
	managedFieldsNumber = int32(1)
)

// describe returns the descriptor of a struct type. A type can contain itself.
func (m *messages) describe(t reflect.Type) *message {
	if known := m.known[t]; known != nil {
		return known
	}
	described := &message{fields: map[int32]*field{}}
	m.known[t] = described
	for i := range t.NumField() {
		structField := t.Field(i)
		number, ok := fieldNumber(structField.Tag.Get("protobuf"))
		if !ok {
			continue
		}
		described.fields[number] = m.describeField(t, structField.Type)
		if name, _, _ := strings.Cut(structField.Tag.Get("json"), ","); structField.Anonymous && name == "" {
			described.fields[number].levels = 0 // in JSON, its fields are those of the struct
		}
	}
	if t == managedFieldsType { // its field has no tag if it is built as a string
		described.fields[managedFieldsNumber] = &field{kind: jsonField}
	}
	return described
}

// describeField returns the descriptor of a field of struct type parent.
func (m *messages) describeField(parent, t reflect.Type) *field {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isBytes(t) && marshalsItself(parent):
		return &field{kind: jsonField}
	case isBytes(t):
		return &field{}
	case t.Kind() == reflect.Map:
		value := &field{levels: levelsOf(t.Elem())}
		if !isBytes(t.Elem()) {
			value = m.describeField(t, t.Elem())
		}
		return &field{kind: mapField, levels: 1, message: value.message, valueLevels: value.levels, isNumber: isNumber(t.Elem())}
	case t.Kind() == reflect.Slice && reflect.PointerTo(t).Implements(unmarshalerType):
		return &field{levels: 1} // a message with one field, a list of strings
	case t.Kind() == reflect.Slice:
		element := m.describeField(t, t.Elem())
		element.levels++
		return element
	case t.Kind() == reflect.Struct:
		return &field{kind: messageField, levels: levelsOf(t), message: m.describe(t)}
	default:
		return &field{}
	}
}

// levelsOf returns how many levels a value of a type adds in JSON. Types that write their JSON themselves are scalars, or like their
// content.
func levelsOf(t reflect.Type) int {
	if t.Kind() != reflect.Struct || marshalsItself(t) {
		return 0
	}
	return 1
}

func marshalsItself(t reflect.Type) bool { return reflect.PointerTo(t).Implements(jsonMarshalerType) }

func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

func isNumber(t reflect.Type) bool { return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Uint64 }

// fieldNumber returns the number of a field from a tag such as "bytes,1,opt,name=metadata".
func fieldNumber(tag string) (int32, bool) {
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		return 0, false
	}
	number, err := strconv.ParseInt(parts[1], 10, 32)
	return int32(number), err == nil
}
