package crdstorage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeserializer "k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// serializer encodes stored objects as JSON, and everything else (errors, metadata in any encoding) with the serializer of
// the upstream handler of custom resources. It has the same media types in the same order, so negotiation is the same.
type serializer struct {
	// view decodes and converts the objects of watches, which the encoder gets as stored. It is nil for metadata.
	view *View
	// initial is whether watches begin with initial events.
	initial  bool
	listKind string
	// identifier is unique among the serializers of one storage: its watch cache shares the output of encoders with one
	// identifier, and the same object may have another variant in another view.
	identifier string
	infos      []runtime.SerializerInfo
}

var _ runtime.NegotiatedSerializer = &serializer{}

func newSerializer(view *View, listKind, identifier string, initial bool) *serializer {
	s := &serializer{view: view, initial: initial, listKind: listKind, identifier: "atoll-raw " + identifier}
	for _, info := range codecs().SupportedMediaTypes() {
		if isJSON(info) {
			info.Serializer = &jsonEncoder{Serializer: info.Serializer, serializer: s}
			info.PrettySerializer = &jsonEncoder{Serializer: info.PrettySerializer, serializer: s, pretty: true}
			stream := *info.StreamSerializer
			stream.Serializer = &jsonEncoder{Serializer: stream.Serializer, serializer: s}
			info.StreamSerializer = &stream
		}
		s.infos = append(s.infos, info)
	}
	return s
}

// codecs are those of the upstream handler, which include CBOR if the feature gate is enabled. The gate is set before the
// first shard of a process is created.
var codecs = sync.OnceValue(func() kubeserializer.CodecFactory {
	if !utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
		return apiextensionsserver.Codecs
	}
	return kubeserializer.NewCodecFactory(apiextensionsserver.Scheme, kubeserializer.WithSerializer(cbor.NewSerializerInfo))
})

func isJSON(info runtime.SerializerInfo) bool { return info.MediaType == runtime.ContentTypeJSON }

// textSerializers are the encodings of whole custom resources, which exclude protobuf.
func textSerializers() []runtime.SerializerInfo {
	var infos []runtime.SerializerInfo
	for _, info := range codecs().SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf {
			infos = append(infos, info)
		}
	}
	return infos
}

// isMetadata returns whether a client requests metadata only, with the kind for the verb: PartialObjectMetadataList for a
// list, else PartialObjectMetadata.
func isMetadata(convert *schema.GroupVersionKind, verb string) bool {
	if convert == nil || convert.Group != metav1.GroupName {
		return false
	}
	switch convert.Kind {
	case "PartialObjectMetadata":
		return verb != "list"
	case "PartialObjectMetadataList":
		return verb == "list"
	}
	return false
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s *serializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.infos }

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (s *serializer) EncoderForVersion(encoder runtime.Encoder, version runtime.GroupVersioner) runtime.Encoder {
	wrapped, ok := encoder.(*jsonEncoder)
	if !ok {
		return codecs().EncoderForVersion(encoder, version)
	}
	fallback := codecs().EncoderForVersion(wrapped.Serializer, version)
	identifier := runtime.Identifier(s.identifier + " " + string(fallback.Identifier()))
	return &versionEncoder{jsonEncoder: wrapped, fallback: fallback, identifier: identifier}
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s *serializer) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return codecs().DecoderToVersion(decoder, version)
}

// jsonEncoder replaces the upstream serializer in the negotiated media types, for stored objects.
type jsonEncoder struct {
	runtime.Serializer
	serializer *serializer
	pretty     bool
}

// versionEncoder encodes stored objects, and delegates everything else.
type versionEncoder struct {
	*jsonEncoder
	fallback   runtime.Encoder
	identifier runtime.Identifier
}

// Identifier implements runtime.Encoder. It includes that of the upstream serializer, which depends on pretty.
func (e *versionEncoder) Identifier() runtime.Identifier { return e.identifier }

// Encode implements runtime.Encoder. It writes errRetired for writeEvent, outside of what watchers share.
func (e *versionEncoder) Encode(obj runtime.Object, w io.Writer) error {
	err := e.encode(obj, w)
	if errors.Is(err, errRetired) && !e.serializer.initial {
		_, err = io.WriteString(w, retiredStatus())
	}
	return err
}

func (e *versionEncoder) encode(obj runtime.Object, w io.Writer) error {
	switch obj := obj.(type) {
	case runtime.CacheableObject:
		return obj.CacheEncode(e.Identifier(), e.encode, w)
	case *Object:
		return e.writeIndented(w, func(w io.Writer) error { return e.encodeObject(obj, w) })
	case *List:
		return e.writeIndented(w, func(w io.Writer) error { return e.encodeList(obj, w) })
	case *metav1.WatchEvent:
		return writeEvent(obj, w)
	}
	return e.fallback.Encode(obj, w)
}

// writeIndented indents the output if the client requests that.
func (e *versionEncoder) writeIndented(w io.Writer, write func(io.Writer) error) error {
	if !e.pretty {
		return write(w)
	}
	var compact, indented bytes.Buffer
	if err := write(&compact); err != nil {
		return err
	}
	if err := json.Indent(&indented, bytes.TrimSpace(compact.Bytes()), "", "  "); err != nil {
		return err
	}
	_, err := w.Write(indented.Bytes())
	return err
}

func (e *versionEncoder) encodeObject(obj *Object, w io.Writer) error {
	variant, err := e.getVariant(obj)
	if err != nil {
		if e.serializer.view != nil { // only objects of watches are not converted before they are encoded
			err = e.serializer.view.explainWatch(obj, err)
		}
		return err
	}
	_, err = w.Write(append(variant.append(make([]byte, 0, variant.size())), '\n'))
	return err
}

// getVariant returns the variant of an object in the view. A bookmark of the watch cache, which has no content, gets the kind
// of the view.
func (e *versionEncoder) getVariant(obj *Object) (*Object, error) {
	view := e.serializer.view
	if view == nil {
		return obj, nil
	}
	if obj.GroupVersionKind().Kind == "" {
		bookmark := *obj
		bookmark.SetGroupVersionKind(view.newFunc().GetObjectKind().GroupVersionKind())
		return &bookmark, nil
	}
	return view.getVariant(obj)
}

// flushSize is the size of the writes of a list.
const flushSize = 32 << 10

// encodeList writes a list item by item. The items are variants already, so conversion errors occur before the first byte. The
// first write is one byte, so that the response writer treats the response as a stream.
func (e *versionEncoder) encodeList(list *List, w io.Writer) error {
	metadata, err := json.Marshal(listMeta{
		Continue: list.Continue, RemainingItemCount: list.RemainingItemCount, ResourceVersion: list.ResourceVersion,
	})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, "{"); err != nil {
		return err
	}
	buffer := make([]byte, 0, flushSize+flushSize/4)
	buffer = fmt.Appendf(buffer, `"apiVersion":%q,"kind":%q,"metadata":%s,"items":[`, e.serializer.view.version.String(), e.serializer.listKind, metadata)
	for i := range list.Items {
		if i > 0 {
			buffer = append(buffer, ',')
		}
		if buffer = list.Items[i].append(buffer); len(buffer) >= flushSize {
			if _, err := w.Write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
	}
	_, err = w.Write(append(buffer, "]}\n"...))
	return err
}

// listMeta is the metadata of a list as the upstream handler of custom resources writes it.
type listMeta struct {
	Continue           string `json:"continue"`
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
	ResourceVersion    string `json:"resourceVersion"`
}

// writeEvent writes an event whose object is encoded already. The upstream handler learns the type of an event before the encoder finds
// that the object is from before the retirement of its version.
func writeEvent(event *metav1.WatchEvent, w io.Writer) error {
	object, eventType := bytes.TrimSpace(event.Object.Raw), event.Type
	if string(object) == retiredStatus() {
		eventType = string(watch.Error)
	}
	buffer, _ := eventBuffers.Get().(*[]byte)
	defer eventBuffers.Put(buffer)
	text := strconv.AppendQuote(append((*buffer)[:0], `{"type":`...), eventType)
	text = append(append(text, `,"object":`...), object...)
	*buffer = append(text, "}\n"...)
	_, err := w.Write(*buffer) // one write per event, as readers of the stream expect
	return err
}

// eventBuffers are reused, as each change is written to each watcher.
var eventBuffers = sync.Pool{New: func() any { return new([]byte) }}
