package crdstorage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"
	"unique"
	"unsafe"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// storedObject is an object as it is in etcd. It is immutable, except for variants, and all copies of an Object share it.
type storedObject struct {
	// json has no surrounding white space, no metadata.resourceVersion and no metadata.selfLink. If payload is not empty,
	// the byte at payloadOffset is its placeholder.
	json, payload string
	// The following fields are substrings of json, unless they had to be unescaped.
	typeMeta                      unique.Handle[typeMeta]
	name, namespace, uid, cluster string
	labels                        map[string]string
	// metadata is the offset of the first byte after the opening brace of the metadata, 0 without metadata.
	metadata, payloadOffset uint32
	flags                   fieldFlags
	// variants are the cached variants of views.
	variants atomic.Pointer[variant]
}

// typeMeta is interned: there are few kinds and many objects.
type typeMeta struct{ apiVersion, kind string }

// fieldFlags are the optional fields of the metadata that an object has.
type fieldFlags uint8

const (
	hasMembers fieldFlags = 1 << iota // the metadata is not empty
	hasOwnerReferences
	hasFinalizers
	hasDeletionTimestamp
)

// maxSize bounds the JSON of one object: offsets have 32 bits. The limit of etcd is far lower.
const maxSize = 1 << 30

// parseObject parses the JSON of an object. It retains data, which must not be modified afterwards; the upstream storage complies,
// as each value is a separate slice.
func parseObject(data []byte) (*storedObject, error) {
	data = bytes.Trim(data, " \t\r\n") // JSON white space
	if len(data) > maxSize {
		return nil, fmt.Errorf("an object of %d bytes is too large", len(data))
	}
	s, canonical, err := scanObject(unsafe.String(unsafe.SliceData(data), len(data)))
	if err != nil || canonical {
		return s, err
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("%w: %w", errJSON, err)
	}
	return parseMap(content)
}

// parseMap encodes an object as Kubernetes would store it, and drops metadata that is no object.
func parseMap(content map[string]any) (*storedObject, error) {
	if _, ok := content["metadata"].(map[string]any); !ok {
		delete(content, "metadata")
	}
	unstructured.RemoveNestedField(content, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(content, "metadata", "selfLink")
	data, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding an object: %w", err)
	}
	s, canonical, err := scanObject(string(data))
	if err == nil && !canonical {
		return nil, fmt.Errorf("%w: it is ambiguous after encoding", errJSON)
	}
	return s, err
}

// scanObject finds the fields of an object. The text is not plain if the fields cannot be found in a single pass; JSON that
// Kubernetes stores always is.
func scanObject(text string) (s *storedObject, canonical bool, err error) {
	if !utf8.ValidString(text) {
		return nil, false, nil
	}
	o := &objectScanner{scanner: scanner{text: text}, stored: &storedObject{json: text}, canonical: true}
	if err := o.scanMembers(0, o.scanRootMember); err != nil {
		return nil, false, err
	}
	if err := o.expectEnd(); err != nil {
		return nil, false, err
	}
	o.stored.typeMeta = unique.Make(o.typeMeta)
	return o.stored, o.canonical, nil
}

// objectScanner collects the fields of one object.
type objectScanner struct {
	scanner
	stored    *storedObject
	typeMeta  typeMeta
	seen      uint16
	canonical bool
}

// markSeen records a field. A duplicate field has its last value, which a single pass does not find.
func (o *objectScanner) markSeen(bit uint) {
	if o.seen&(1<<bit) != 0 {
		o.canonical = false
	}
	o.seen |= 1 << bit
}

func (o *objectScanner) scanRootMember(key string) error {
	switch key {
	case `"apiVersion"`:
		o.markSeen(0)
		return o.scanStringInto(&o.typeMeta.apiVersion)
	case `"kind"`:
		o.markSeen(1)
		return o.scanStringInto(&o.typeMeta.kind)
	case `"metadata"`:
		o.markSeen(2)
		if o.peek() != '{' {
			o.canonical = false
			return o.skipValue(0)
		}
		o.stored.metadata = uint32(o.pos) + 1 // parse bounds the size
		return o.scanMembers(1, o.scanMetadataMember)
	}
	o.checkEscapedKey(key)
	return o.skipValue(0)
}

func (o *objectScanner) scanMetadataMember(key string) error {
	o.stored.flags |= hasMembers
	switch key {
	case `"name"`:
		o.markSeen(3)
		return o.scanStringInto(&o.stored.name)
	case `"namespace"`:
		o.markSeen(4)
		return o.scanStringInto(&o.stored.namespace)
	case `"uid"`:
		o.markSeen(5)
		return o.scanStringInto(&o.stored.uid)
	case `"labels"`:
		o.markSeen(6)
		return o.scanStringMap(func(key, value string) {
			if o.stored.labels == nil {
				o.stored.labels = map[string]string{}
			}
			o.stored.labels[key] = value
		})
	case `"annotations"`:
		o.markSeen(7)
		return o.scanStringMap(func(key, value string) {
			if key == logicalcluster.AnnotationKey {
				o.stored.cluster = value
			}
		})
	case `"ownerReferences"`:
		o.markSeen(8)
		return o.markPresent(hasOwnerReferences)
	case `"finalizers"`:
		o.markSeen(9)
		return o.markPresent(hasFinalizers)
	case `"deletionTimestamp"`:
		o.markSeen(10)
		return o.markPresent(hasDeletionTimestamp)
	case `"resourceVersion"`, `"selfLink"`:
		o.canonical = false
	}
	o.checkEscapedKey(key)
	return o.skipValue(1)
}

// checkEscapedKey checks whether a key with escapes is one of the collected fields.
func (o *objectScanner) checkEscapedKey(key string) {
	if strings.IndexByte(key, '\\') < 0 {
		return
	}
	switch unquote(key) {
	case "apiVersion", "kind", "metadata", "name", "namespace", "uid", "labels", "annotations", "ownerReferences", "finalizers",
		"deletionTimestamp", "resourceVersion", "selfLink":
		o.canonical = false
	}
}

// markPresent skips a value and sets its flag, unless it is null or empty.
func (o *objectScanner) markPresent(flag fieldFlags) error {
	start := o.pos
	if err := o.skipValue(1); err != nil {
		return err
	}
	switch o.scanner.text[start:o.pos] {
	case "null", "[]", `""`:
	default:
		o.stored.flags |= flag
	}
	return nil
}

// scanStringInto sets a string; a value of another type counts as missing, as in the lenient decoding of stored objects.
func (o *objectScanner) scanStringInto(into *string) error {
	value, err := o.scanString()
	*into = value
	return err
}

// scanStringMap visits the members of an object whose values are strings.
func (o *objectScanner) scanStringMap(visit func(key, value string)) error {
	return o.scanStrings(2, visit)
}

// scanStrings visits the members of the object at pos whose values are strings, unescaped, and skips everything else.
func (s *scanner) scanStrings(depth int, visit func(key, value string)) error {
	if s.peek() != '{' {
		return s.skipValue(depth)
	}
	return s.scanMembers(depth, func(key string) error {
		isString := s.peek() == '"'
		value, err := s.scanString()
		if err == nil && isString {
			visit(unquote(key), value)
		}
		return err
	})
}

// scanString consumes a value and returns it unescaped if it is a string.
func (s *scanner) scanString() (string, error) {
	start, isString := s.pos, s.peek() == '"'
	if err := s.skipValue(0); err != nil || !isString {
		return "", err
	}
	return unquote(s.text[start:s.pos]), nil
}

// unquote decodes a string that str accepted. Without escapes it shares the memory of the text.
func unquote(quoted string) string {
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var value string
	if err := json.Unmarshal([]byte(quoted), &value); err != nil {
		return ""
	}
	return value
}
