package replica

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/nesting"
)

// shardingScheme has the kinds that shards exchange only through the cache; shards do not serve them.
var shardingScheme = runtime.NewScheme()

// servedDecoder decodes what other shards publish of the resources that shards serve.
var servedDecoder = legacyscheme.Codecs.DecoderToVersion(
	nesting.NewChecker(legacyscheme.Scheme).Decoder(legacyscheme.Codecs.UniversalDeserializer(), nesting.Default().Stored), runtime.InternalGroupVersioner)

func init() {
	utilruntime.Must(shardingv1alpha1.AddToScheme(shardingScheme))
}

// decode returns an object in the type that storage.Reader has of its resource, with its original uid and resource
// version. The annotations that carry these are removed; those that name its origin stay.
func decode(resource client.Resource, raw []byte) (runtime.Object, error) {
	obj, err := decodeAny(resource, raw)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	annotations := accessor.GetAnnotations()
	if version, ok := annotations[client.OriginalResourceVersionAnnotation]; ok {
		accessor.SetResourceVersion(version)
	}
	if uid, ok := annotations[client.OriginalUIDAnnotation]; ok {
		accessor.SetUID(types.UID(uid))
	}
	delete(annotations, client.OriginalResourceVersionAnnotation)
	delete(annotations, client.OriginalUIDAnnotation)
	accessor.SetManagedFields(nil) // unused by readers
	return obj, nil
}

func decodeAny(resource client.Resource, raw []byte) (runtime.Object, error) {
	if !resource.IsRemoteOnly() {
		return decodeServed(resource, raw)
	}
	obj, err := shardingScheme.New(resource.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if err := exactjson.Unmarshal(raw, obj); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", resource.Kind, err)
	}
	return obj, nil
}

// decodeServed returns an object of a resource that shards serve. Its kind must be that of the resource: readers cannot
// handle another type.
func decodeServed(resource client.Resource, raw []byte) (runtime.Object, error) {
	obj, gvk, err := servedDecoder.Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	if gvk.GroupKind() != resource.GroupVersionKind().GroupKind() {
		return nil, fmt.Errorf("decoding %s: it is a %s", resource.Kind, gvk)
	}
	return obj, nil
}

// Encode returns an object of a reader as JSON in the version of the resource in the cache.
func Encode(resource client.Resource, obj runtime.Object) ([]byte, error) {
	obj = obj.DeepCopyObject() // encoding sets the kind on the object, which is shared
	if resource.IsRemoteOnly() {
		obj.GetObjectKind().SetGroupVersionKind(resource.GroupVersionKind())
		return json.Marshal(obj)
	}
	return runtime.Encode(legacyscheme.Codecs.EncoderForVersion(jsonSerializer(legacyscheme.Codecs), resource.GroupVersion()), obj)
}

func jsonSerializer(codecs serializer.CodecFactory) runtime.Serializer {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return info.Serializer
}
