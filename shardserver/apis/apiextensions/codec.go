package apiextensions

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// protobufMagic is the prefix of stored protobuf.
var protobufMagic = []byte("k8s\x00")

// Fields of the message CustomResourceDefinition of apiextensions.k8s.io/v1.
const (
	fieldSpec      = 2
	lengthEncoded  = 2
	fieldTypeWidth = 3
)

var errNoSpec = errors.New("no field of a specification")

// interningOptions decodes definitions with the interning codec.
type interningOptions struct {
	generic.RESTOptionsGetter
	interner *SpecInterner
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (i interningOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := i.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	config := *options.StorageConfig
	config.Codec = &codec{Codec: config.Codec, interner: i.interner}
	options.StorageConfig = &config
	return options, nil
}

// codec decodes definitions such that equal specifications, managed fields and long annotations share memory, and
// decodes each specification only once: many workspaces have the same definitions. Decoded definitions are read-only,
// like all objects of a watch cache; upstream copies or replaces specifications and does not modify them.
type codec struct {
	runtime.Codec
	interner *SpecInterner
}

// Decode implements runtime.Decoder.
func (c *codec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	definition, _ := into.(*apiextensions.CustomResourceDefinition)
	rest, hash, err := splitSpec(data)
	if err == nil && definition != nil {
		if spec, ok := c.interner.get(hash); ok && decodeRest(rest, definition) == nil {
			definition.Spec = spec
			c.interner.metadata.InternMetadata(definition)
			kind := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
			return definition, &kind, nil
		}
	}
	obj, kind, decodeErr := c.Codec.Decode(data, defaults, into)
	if decodeErr != nil {
		return obj, kind, decodeErr
	}
	if decoded, ok := obj.(*apiextensions.CustomResourceDefinition); ok {
		if err == nil {
			decoded.Spec = c.interner.intern(hash, decoded.Spec)
		}
		c.interner.metadata.InternMetadata(decoded)
	}
	return obj, kind, nil
}

// HashOf returns the hash of a definition's specification. It is cheap for definitions of the watch cache.
func (s *SpecInterner) HashOf(definition *apiextensions.CustomResourceDefinition) (Hash, error) {
	if hash, ok := s.lookupHash(&definition.Spec); ok {
		return hash, nil
	}
	external := &apiextensionsv1.CustomResourceDefinition{}
	if err := legacyscheme.Scheme.Convert(definition, external, nil); err != nil {
		return Hash{}, fmt.Errorf("hashing definition %q: %w", definition.Name, err)
	}
	encoded, err := external.Spec.Marshal()
	if err != nil {
		return Hash{}, fmt.Errorf("hashing definition %q: %w", definition.Name, err)
	}
	return sha256.Sum256(encoded), nil
}

// splitSpec returns a stored definition without its specification, and the hash of the specification. It fails unless
// the definition is stored as protobuf of version v1.
func splitSpec(data []byte) (rest []byte, hash Hash, err error) {
	content, ok := bytes.CutPrefix(data, protobufMagic)
	if !ok {
		return nil, hash, errNoSpec
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(content); err != nil {
		return nil, hash, fmt.Errorf("reading the envelope: %w", err)
	}
	if envelope.APIVersion != apiextensionsv1.SchemeGroupVersion.String() || envelope.ContentEncoding != "" {
		return nil, hash, errNoSpec
	}
	message := envelope.Raw
	for offset := 0; offset < len(message); {
		tag, width := binary.Uvarint(message[offset:])
		if width <= 0 || tag&(1<<fieldTypeWidth-1) != lengthEncoded {
			return nil, hash, errNoSpec // all fields are length-delimited
		}
		size, sizeWidth := binary.Uvarint(message[offset+width:])
		start := offset + width + sizeWidth
		if sizeWidth <= 0 || size > uint64(len(message)-start) {
			return nil, hash, errNoSpec
		}
		end := start + int(size)
		if tag>>fieldTypeWidth == fieldSpec {
			hash = sha256.Sum256(message[start:end])
			return append(message[:offset:offset], message[end:]...), hash, nil
		}
		offset = end
	}
	return nil, hash, errNoSpec
}

// decodeRest decodes a definition without specification. It fails if defaults depend on the specification.
func decodeRest(rest []byte, into *apiextensions.CustomResourceDefinition) error {
	var external apiextensionsv1.CustomResourceDefinition
	if err := external.Unmarshal(rest); err != nil {
		return err
	}
	if len(external.Status.StoredVersions) == 0 {
		return errNoSpec
	}
	internal := apiextensions.CustomResourceDefinition{ObjectMeta: external.ObjectMeta}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinitionStatus_To_apiextensions_CustomResourceDefinitionStatus(&external.Status, &internal.Status, nil); err != nil {
		return err
	}
	*into = internal
	return nil
}
