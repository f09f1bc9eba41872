package crdstorage

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Codec encodes objects as in etcd: JSON without a resource version.
var Codec runtime.Codec = codec{}

type codec struct{}

// Identifier implements runtime.Encoder.
func (codec) Identifier() runtime.Identifier { return "atoll-raw-json" }

// Encode implements runtime.Encoder.
func (codec) Encode(obj runtime.Object, w io.Writer) error {
	switch obj := obj.(type) {
	case *Object:
		_, err := w.Write(append((&Object{stored: obj.stored}).append(nil), '\n')) // with a newline, as the upstream codec of custom resources
		return err
	default:
		return fmt.Errorf("encoding %T as a stored custom resource is not possible", obj)
	}
}

// Decode implements runtime.Decoder. It retains data, which must not be modified afterwards.
func (codec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj := &Object{}
	switch into := into.(type) {
	case nil:
	case *Object:
		obj = into
	default:
		return nil, nil, fmt.Errorf("decoding a stored custom resource into %T is not possible", into)
	}
	s, err := parseObject(data)
	if err != nil {
		return nil, nil, err
	}
	*obj = Object{stored: s}
	kind := obj.GroupVersionKind()
	return obj, &kind, nil
}
