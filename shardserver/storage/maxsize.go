package storage

import (
	"bytes"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WithMaxSize returns a codec of a storage that refuses to encode objects with more bytes than maxBytes, with status 413. It bounds
// what patches and apply configurations add up to.
func WithMaxSize(codec runtime.Codec, resource schema.GroupResource, maxBytes int) runtime.Codec {
	return &boundedCodec{codec, resource, maxBytes}
}

type boundedCodec struct {
	runtime.Codec
	resource schema.GroupResource
	maxBytes int
}

// Encode implements runtime.Encoder.
func (c *boundedCodec) Encode(obj runtime.Object, w io.Writer) error {
	var encoded bytes.Buffer
	if err := c.Codec.Encode(obj, &encoded); err != nil {
		return err
	}
	if size := encoded.Len(); size > c.maxBytes {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object of %s may have at most %d bytes as it is stored, this has %d", c.resource, c.maxBytes, size))
	}
	_, err := w.Write(encoded.Bytes())
	return err
}
