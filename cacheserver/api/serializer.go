package api

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Scheme has the types of responses besides the stored objects: errors, discovery, tables. It has no stored type.
var Scheme, Codecs = func() (*runtime.Scheme, serializer.CodecFactory) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme, serializer.NewCodecFactory(scheme)
}()

// schemalessSerializer encodes objects unchanged, as JSON or YAML.
type schemalessSerializer struct{ runtime.NegotiatedSerializer }

func newSerializer() runtime.NegotiatedSerializer {
	return schemalessSerializer{unstructuredscheme.NewUnstructuredNegotiatedSerializer()}
}

// EncoderForVersion implements runtime.NegotiatedSerializer without conversion.
func (schemalessSerializer) EncoderForVersion(encoder runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder {
	return schemalessEncoder{encoder}
}

type schemalessEncoder struct{ runtime.Encoder }

// Encode implements runtime.Encoder.
func (e schemalessEncoder) Encode(obj runtime.Object, w io.Writer) error {
	if status, ok := obj.(*metav1.Status); ok && status.Kind == "" {
		status.Kind, status.APIVersion = "Status", "v1"
	}
	return e.Encoder.Encode(obj, w)
}

// EncodeWithAllocator saves the stock handlers an allocation for each object, if the encoder supports it.
func (e schemalessEncoder) EncodeWithAllocator(obj runtime.Object, w io.Writer, _ runtime.MemoryAllocator) error {
	return e.Encode(obj, w)
}
