package registry

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// WithoutProtobuf returns a serializer for API types without protobuf encoding. A client that prefers protobuf but
// accepts JSON gets JSON, as for custom resources, instead of an error. Partial object metadata is still encoded as
// protobuf for clients that accept it.
func WithoutProtobuf(serializer runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	return withoutProtobuf{serializer}
}

type withoutProtobuf struct{ runtime.NegotiatedSerializer }

func (w withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(w.NegotiatedSerializer.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
}
