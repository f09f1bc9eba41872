package registry

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// WithoutProtobuf returns a serializer for the group of our kinds, which have no protobuf form. A client that prefers
// protobuf but accepts JSON then gets JSON, as it would for custom resources, instead of a refusal. Objects
// reduced to their metadata do have one, and clients that accept both still get it.
func WithoutProtobuf(serializer runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	return withoutProtobuf{serializer}
}

type withoutProtobuf struct{ runtime.NegotiatedSerializer }

func (s withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
}
