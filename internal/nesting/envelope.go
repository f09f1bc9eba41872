package nesting

import (
	"bytes"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// envelopePrefix precedes protobuf that names its kind: a runtime.Unknown, which contains the message.
var envelopePrefix = []byte("k8s\x00")

// CheckProtobuf returns an error for a message that nests too deep, or that has malformed maps. It is for the decoders that the
// serializer of runtime.ContentTypeProtobuf calls; defaults and into are the arguments of runtime.Decoder.
func (c *Checker) CheckProtobuf(data []byte, limit int, defaults *schema.GroupVersionKind, into runtime.Object) error {
	content, ok := bytes.CutPrefix(data, envelopePrefix)
	if !ok {
		return nil // no decoder exists for it
	}
	envelope, ok := readEnvelope(content)
	if !ok {
		return nil
	}
	if _, raw := into.(*runtime.Unknown); raw {
		return nil // it is not decoded
	}
	return c.check(envelope.raw, limit, withDefaults(envelope.kind(), defaults), into)
}

// CheckRawProtobuf is CheckProtobuf for messages without an envelope.
func (c *Checker) CheckRawProtobuf(data []byte, limit int, defaults *schema.GroupVersionKind, into runtime.Object) error {
	return c.check(data, limit, withDefaults(schema.GroupVersionKind{}, defaults), into)
}

// check checks the message of a kind for the type into which the stock serializer decodes it.
func (c *Checker) check(data []byte, limit int, kind schema.GroupVersionKind, into runtime.Object) error {
	described := c.messages.of(c.typeOf(kind, into))
	if described == nil {
		return nil
	}
	return checkMessage(described, data, 1, limit)
}

var noType = reflect.TypeFor[struct{}]()

// typeOf returns the type that the stock serializer decodes: the type of into if it has the kind or is not registered, or else the type
// of the kind.
func (c *Checker) typeOf(kind schema.GroupVersionKind, into runtime.Object) reflect.Type {
	if into != nil {
		kinds, _, err := c.scheme.ObjectKinds(into)
		if err != nil {
			return reflect.TypeOf(into)
		}
		kind = withDefaults(kind, &kinds[0])
		if kind.Version == "" && kind.Group == "" {
			kind.Group = kinds[0].Group
		}
		for _, own := range kinds {
			if own == kind {
				return reflect.TypeOf(into)
			}
		}
	}
	if t, ok := c.scheme.AllKnownTypes()[kind]; ok {
		return t
	}
	unversioned, err := c.scheme.New(kind)
	if err != nil {
		return noType
	}
	return reflect.TypeOf(unversioned)
}

// withDefaults completes a kind like the stock serializer.
func withDefaults(kind schema.GroupVersionKind, defaults *schema.GroupVersionKind) schema.GroupVersionKind {
	if defaults == nil {
		return kind
	}
	if kind.Kind == "" {
		kind.Kind = defaults.Kind
	}
	if kind.Version == "" && defaults.Version != "" {
		kind.Group, kind.Version = defaults.Group, defaults.Version
	}
	return kind
}

// envelope is a runtime.Unknown whose content is not copied.
type envelope struct {
	apiVersion, kindName []byte
	raw                  []byte
}

func (e *envelope) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(string(e.apiVersion), string(e.kindName))
}

// readEnvelope reads an envelope. Like generated code, it uses the last of several values.
func readEnvelope(data []byte) (envelope, bool) {
	var e envelope
	return e, readStrings(data, func(number int32, value []byte) bool {
		switch number {
		case 1: // the kind
			return readStrings(value, func(number int32, value []byte) bool {
				switch number {
				case 1:
					e.apiVersion = value
				case 2:
					e.kindName = value
				}
				return true
			})
		case 2:
			e.raw = value
		}
		return true
	})
}

// readStrings calls visit with the fields of a message that have a length, and reports whether the message is well-formed.
func readStrings(data []byte, visit func(number int32, value []byte) bool) bool {
	s := scan{data: data}
	for s.pos < len(data) {
		start := s.pos
		tag, ok := s.varint(len(data))
		if !ok {
			return false
		}
		if tag&7 != wireLength {
			s.pos = start
			if !s.skip(len(data)) {
				return false
			}
			continue
		}
		end, ok := s.length(len(data))
		if !ok || !visit(fieldNumberOf(tag), data[s.pos:end]) {
			return false
		}
		s.pos = end
	}
	return true
}
