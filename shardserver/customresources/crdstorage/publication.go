package crdstorage

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Publication is the version in which a provider publishes its objects. Those that are stored in another one are first
// converted to it as the provider's definition does, for views of definitions that need not know the stored versions.
type Publication struct {
	version schema.GroupVersion
	decoder runtime.Decoder
	// newFunc returns an empty object of the version.
	newFunc func() runtime.Object
}

// Publication returns the publication in a version of the definition of the views; nil if it does not serve that version.
func (v *Views) Publication(version string) *Publication {
	view := v.Version(version)
	if view == nil {
		return nil
	}
	return &Publication{version: view.version, decoder: view.codec, newFunc: view.newFunc}
}

// ViewsOf is Views with the published objects, and the names of the versions of the definition; publication may be nil.
func (s *Storage) ViewsOf(publication *Publication, versions ...string) *Views {
	views := s.Views()
	views.publication, views.versions = publication, versions
	return views
}

// decodingWith returns a codec that decodes published objects; the receiver may be nil.
func (p *Publication) decodingWith(codec runtime.Codec) runtime.Codec {
	if p == nil {
		return codec
	}
	return publicationCodec{codec, p}
}

type publicationCodec struct {
	runtime.Codec
	*Publication
}

// Decode implements runtime.Decoder.
func (c publicationCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	stored := &unstructured.Unstructured{}
	if _, _, err := unstructured.UnstructuredJSONScheme.Decode(data, nil, stored); err != nil {
		return nil, nil, err
	}
	if stored.GroupVersionKind().GroupVersion() != c.version {
		published, _, err := c.decoder.Decode(data, nil, c.newFunc())
		if err != nil {
			return nil, nil, fmt.Errorf("converting to the published version %s: %w", c.version, err)
		}
		if data, err = runtime.Encode(unstructured.UnstructuredJSONScheme, published); err != nil {
			return nil, nil, err
		}
	}
	return c.Codec.Decode(data, defaults, into)
}
