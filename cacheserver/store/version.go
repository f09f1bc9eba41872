package store

import (
	"fmt"
	"io"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// versionCodec stores objects in one version and returns them in another. It changes nothing but the apiVersion.
type versionCodec struct {
	runtime.Codec
	stored, served schema.GroupVersion
}

// Encode implements runtime.Encoder.
func (c versionCodec) Encode(obj runtime.Object, w io.Writer) error {
	given, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("unexpected type %T in the cache", obj)
	}
	copied := &unstructured.Unstructured{Object: maps.Clone(given.Object)}
	copied.SetAPIVersion(c.stored.String())
	return c.Codec.Encode(copied, w)
}

// Decode implements runtime.Decoder.
func (c versionCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if decoded, ok := obj.(*unstructured.Unstructured); ok && err == nil {
		decoded.SetAPIVersion(c.served.String())
	}
	return obj, kind, err
}

// Identifier implements runtime.Encoder.
func (c versionCodec) Identifier() runtime.Identifier {
	return runtime.Identifier("cache-" + c.stored.String() + "-" + c.served.String())
}
