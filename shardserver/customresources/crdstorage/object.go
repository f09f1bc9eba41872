package crdstorage

import (
	"encoding/json"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is a custom resource as stored: the JSON that is in etcd, in its stored version, and its resource version. It has
// two words; copies share everything else and are cheap. Getters of less common metadata (annotations, owner references,
// managed fields) parse the JSON on each call and treat malformed fields as missing. Setters encode the whole object again;
// they are for the few places of upstream libraries that need them.
type Object struct {
	stored          *storedObject
	resourceVersion uint64
}

var (
	_ runtime.Object       = &Object{}
	_ metav1.Object        = &Object{}
	_ schema.ObjectKind    = &Object{}
	_ json.Marshaler       = &Object{}
	_ json.Unmarshaler     = &Object{}
	_ runtime.Object       = &List{}
	_ metav1.ListInterface = &List{}
)

// NewObject returns an object with JSON as in etcd. It retains data, which must not be modified afterwards.
func NewObject(data []byte, resourceVersion uint64) (*Object, error) {
	s, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	return &Object{stored: s, resourceVersion: resourceVersion}, nil
}

// List is a list of objects of any number of logical clusters and versions.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Object `json:"items"`
}

// DeepCopyObject implements runtime.Object. The copy shares the immutable content.
func (o *Object) DeepCopyObject() runtime.Object {
	if o == nil {
		return nil
	}
	c := *o
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *List) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	c := &List{TypeMeta: l.TypeMeta, Items: append([]Object(nil), l.Items...)}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	return c
}

// JSON returns the object as stored, without resource version. It is empty for an object without content.
func (o *Object) JSON() string {
	if o.stored == nil {
		return ""
	}
	return o.stored.text()
}

// Unstructured decodes the object, with its resource version.
func (o *Object) Unstructured() (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	if o.stored != nil {
		if err := utiljson.Unmarshal([]byte(o.stored.text()), &obj.Object); err != nil {
			return nil, err
		}
	}
	if o.resourceVersion != 0 {
		obj.SetResourceVersion(o.GetResourceVersion())
	}
	return obj, nil
}

// WriteTo implements io.WriterTo: the JSON with the resource version, without surrounding white space.
func (o *Object) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(o.append(nil))
	return int64(n), err
}

// MarshalJSON implements json.Marshaler, for encoders without support for this type.
func (o *Object) MarshalJSON() ([]byte, error) { return o.append(nil), nil }

// UnmarshalJSON implements json.Unmarshaler. It sets the resource version from the JSON.
func (o *Object) UnmarshalJSON(data []byte) error {
	var version struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := utiljson.Unmarshal(data, &version); err != nil {
		return err
	}
	s, err := parseObject([]byte(string(data)))
	if err != nil {
		return err
	}
	o.stored = s
	o.SetResourceVersion(version.Metadata.ResourceVersion)
	return nil
}

// size returns how many bytes append needs at most.
func (o *Object) size() int {
	if o.stored == nil {
		return 64
	}
	return len(o.stored.json) + len(o.stored.payload) + 64
}

// append appends the JSON to a buffer, with the resource version inserted at the beginning of the metadata.
func (o *Object) append(buffer []byte) []byte {
	switch s := o.stored; {
	case s == nil && o.resourceVersion == 0:
		return append(buffer, "{}"...)
	case s == nil:
		buffer = append(buffer, `{"metadata":{"resourceVersion":"`...)
		buffer = strconv.AppendUint(buffer, o.resourceVersion, 10)
		return append(buffer, `"}}`...)
	case o.resourceVersion == 0:
		return s.append(buffer, 0, len(s.json))
	case s.metadata == 0:
		// Only objects that were not written through the API have no metadata.
		buffer = append(buffer, `{"metadata":{"resourceVersion":"`...)
		buffer = strconv.AppendUint(buffer, o.resourceVersion, 10)
		buffer = append(buffer, `"}`...)
		rest := scanner{text: s.json, pos: 1}
		if rest.skipSpace(); rest.peek() != '}' {
			buffer = append(buffer, ',')
		}
		return s.append(buffer, 1, len(s.json))
	default:
		buffer = s.append(buffer, 0, int(s.metadata))
		buffer = append(buffer, `"resourceVersion":"`...)
		buffer = strconv.AppendUint(buffer, o.resourceVersion, 10)
		buffer = append(buffer, '"')
		if s.flags&hasMembers != 0 {
			buffer = append(buffer, ',')
		}
		return s.append(buffer, int(s.metadata), len(s.json))
	}
}

// GetObjectKind implements runtime.Object.
func (o *Object) GetObjectKind() schema.ObjectKind { return o }

// GroupVersionKind implements schema.ObjectKind: the kind and version in which the object is stored.
func (o *Object) GroupVersionKind() schema.GroupVersionKind {
	if o.stored == nil {
		return schema.GroupVersionKind{}
	}
	kind := o.stored.typeMeta.Value()
	version, err := schema.ParseGroupVersion(kind.apiVersion)
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return version.WithKind(kind.kind)
}

// SetGroupVersionKind implements schema.ObjectKind.
func (o *Object) SetGroupVersionKind(kind schema.GroupVersionKind) {
	if kind != o.GroupVersionKind() {
		o.mutate(func(obj *unstructured.Unstructured) { obj.SetGroupVersionKind(kind) })
	}
}

// mutate modifies the object and encodes it again.
func (o *Object) mutate(change func(*unstructured.Unstructured)) {
	obj, err := o.Unstructured()
	if err != nil {
		obj = &unstructured.Unstructured{Object: map[string]any{}}
	}
	change(obj)
	if s, err := parseMap(obj.Object); err == nil {
		o.stored = s
	}
}

// LogicalCluster returns the name of the logical cluster that the object was stored in, empty if it was not stored.
func (o *Object) LogicalCluster() string {
	if o.stored == nil {
		return ""
	}
	return o.stored.cluster
}

// GetName implements metav1.Object.
func (o *Object) GetName() string {
	if o.stored == nil {
		return ""
	}
	return o.stored.name
}

// GetNamespace implements metav1.Object.
func (o *Object) GetNamespace() string {
	if o.stored == nil {
		return ""
	}
	return o.stored.namespace
}

// GetUID implements metav1.Object.
func (o *Object) GetUID() types.UID {
	if o.stored == nil {
		return ""
	}
	return types.UID(o.stored.uid)
}

// GetLabels implements metav1.Object. All copies of the object share the map, callers must not modify it.
func (o *Object) GetLabels() map[string]string {
	if o.stored == nil {
		return nil
	}
	return o.stored.labels
}

// GetResourceVersion implements metav1.Object.
func (o *Object) GetResourceVersion() string {
	if o.resourceVersion == 0 {
		return ""
	}
	return strconv.FormatUint(o.resourceVersion, 10)
}

// SetResourceVersion implements metav1.Object. A version that is no number unsets it.
func (o *Object) SetResourceVersion(version string) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		n = 0
	}
	o.resourceVersion = n
}
