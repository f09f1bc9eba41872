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

// stored is an object as etcd holds it. It never changes, but for forms, so that every copy of an Object shares it.
type stored struct {
	// json has no white space around it and neither metadata.resourceVersion nor metadata.selfLink in it. Where body is not
	// empty, the byte at cut stands for it.
	json, body string
	// What follows are pieces of json; they share its memory where they need no unescaping.
	typeMeta                      unique.Handle[typeMeta]
	name, namespace, uid, cluster string
	labels                        map[string]string
	// metadata is the offset of the first byte behind the brace that opens the metadata, 0 if there is none.
	metadata, cut uint32
	has           presence
	// forms are what the object looks like through views that read it before.
	forms atomic.Pointer[form]
}

// typeMeta is interned: there are few kinds and many objects.
type typeMeta struct{ apiVersion, kind string }

// presence tells which rarely set fields of the metadata an object has.
type presence uint8

const (
	hasMembers presence = 1 << iota // the metadata is not empty
	hasOwnerReferences
	hasFinalizers
	hasDeletionTimestamp
)

// maxSize bounds the JSON of one object: offsets in it are 32 bits wide. etcd refuses far smaller ones.
const maxSize = 1 << 30

// parse reads what etcd holds. It keeps the bytes: they must not change afterwards, which the callers in the stock
// storage hold to (each value comes in a slice of its own).
func parse(data []byte) (*stored, error) {
	data = bytes.Trim(data, " \t\r\n") // what JSON calls space, and nothing else
	if len(data) > maxSize {
		return nil, fmt.Errorf("an object of %d bytes is too large", len(data))
	}
	s, plain, err := scan(unsafe.String(unsafe.SliceData(data), len(data)))
	if err != nil || plain {
		return s, err
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("%w: %w", errJSON, err)
	}
	return parseMap(content)
}

// parseMap encodes an object as Kubernetes would have stored it. Metadata that is no object means nothing.
func parseMap(content map[string]any) (*stored, error) {
	if _, ok := content["metadata"].(map[string]any); !ok {
		delete(content, "metadata")
	}
	unstructured.RemoveNestedField(content, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(content, "metadata", "selfLink")
	data, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding an object: %w", err)
	}
	s, plain, err := scan(string(data))
	if err == nil && !plain {
		return nil, fmt.Errorf("%w: it stays ambiguous when written anew", errJSON)
	}
	return s, err
}

// scan finds the fields of an object. It is not plain if they cannot be taken from the text as they stand: what
// Kubernetes stores always is.
func scan(text string) (s *stored, plain bool, err error) {
	if !utf8.ValidString(text) {
		return nil, false, nil
	}
	o := &objectScanner{scanner: scanner{text: text}, stored: &stored{json: text}, plain: true}
	if err := o.members(0, o.root); err != nil {
		return nil, false, err
	}
	if err := o.end(); err != nil {
		return nil, false, err
	}
	o.stored.typeMeta = unique.Make(o.typeMeta)
	return o.stored, o.plain, nil
}

// objectScanner gathers the fields of one object while it walks over its text.
type objectScanner struct {
	scanner
	stored   *stored
	typeMeta typeMeta
	seen     uint16
	plain    bool
}

// once notes a field; one that comes twice means what its last value says, which is not found in one walk.
func (o *objectScanner) once(bit uint) {
	if o.seen&(1<<bit) != 0 {
		o.plain = false
	}
	o.seen |= 1 << bit
}

func (o *objectScanner) root(key string) error {
	switch key {
	case `"apiVersion"`:
		o.once(0)
		return o.text(&o.typeMeta.apiVersion)
	case `"kind"`:
		o.once(1)
		return o.text(&o.typeMeta.kind)
	case `"metadata"`:
		o.once(2)
		if o.peek() != '{' {
			o.plain = false
			return o.value(0)
		}
		o.stored.metadata = uint32(o.pos) + 1 //nolint:gosec // parse bounds the size
		return o.members(1, o.meta)
	}
	o.unescaped(key)
	return o.value(0)
}

func (o *objectScanner) meta(key string) error {
	o.stored.has |= hasMembers
	switch key {
	case `"name"`:
		o.once(3)
		return o.text(&o.stored.name)
	case `"namespace"`:
		o.once(4)
		return o.text(&o.stored.namespace)
	case `"uid"`:
		o.once(5)
		return o.text(&o.stored.uid)
	case `"labels"`:
		o.once(6)
		return o.stringMap(func(key, value string) {
			if o.stored.labels == nil {
				o.stored.labels = map[string]string{}
			}
			o.stored.labels[key] = value
		})
	case `"annotations"`:
		o.once(7)
		return o.stringMap(func(key, value string) {
			if key == logicalcluster.AnnotationKey {
				o.stored.cluster = value
			}
		})
	case `"ownerReferences"`:
		o.once(8)
		return o.present(hasOwnerReferences)
	case `"finalizers"`:
		o.once(9)
		return o.present(hasFinalizers)
	case `"deletionTimestamp"`:
		o.once(10)
		return o.present(hasDeletionTimestamp)
	case `"resourceVersion"`, `"selfLink"`:
		o.plain = false
	}
	o.unescaped(key)
	return o.value(1)
}

// unescaped looks at a key again that is written with escapes: it may be one of those looked for.
func (o *objectScanner) unescaped(key string) {
	if strings.IndexByte(key, '\\') < 0 {
		return
	}
	switch unquote(key) {
	case "apiVersion", "kind", "metadata", "name", "namespace", "uid", "labels", "annotations", "ownerReferences", "finalizers",
		"deletionTimestamp", "resourceVersion", "selfLink":
		o.plain = false
	}
}

// present skips a value and notes that it is there, unless it is null or empty.
func (o *objectScanner) present(what presence) error {
	start := o.pos
	if err := o.value(1); err != nil {
		return err
	}
	switch o.scanner.text[start:o.pos] {
	case "null", "[]", `""`:
	default:
		o.stored.has |= what
	}
	return nil
}

// text takes a string; a value of another kind counts as missing, as in the lenient decoding of stored objects.
func (o *objectScanner) text(into *string) error {
	value, err := o.stringValue()
	*into = value
	return err
}

// stringMap visits the members of an object whose values are strings.
func (o *objectScanner) stringMap(visit func(key, value string)) error {
	return o.strings(2, visit)
}

// strings visits the members of the object at pos whose values are strings, unescaped, and skips everything else.
func (s *scanner) strings(depth int, visit func(key, value string)) error {
	if s.peek() != '{' {
		return s.value(depth)
	}
	return s.members(depth, func(key string) error {
		isString := s.peek() == '"'
		value, err := s.stringValue()
		if err == nil && isString {
			visit(unquote(key), value)
		}
		return err
	})
}

// stringValue consumes a value and returns it unescaped if it is a string.
func (s *scanner) stringValue() (string, error) {
	start, isString := s.pos, s.peek() == '"'
	if err := s.value(0); err != nil || !isString {
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
