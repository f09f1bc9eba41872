package crdstorage

import (
	"bytes"
	"encoding/json"
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
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// serializer writes stored objects as JSON. Everything else (errors, metadata in whatever encoding) it leaves to the
// serializer that the stock handler of custom resources uses. It offers the same media types in the same order, so
// that negotiation comes out the same.
type serializer struct {
	// view forms what the encoder gets as stored: the objects of watches. It is nil where only metadata is served.
	view     *View
	listKind string
	// identifier differs between all serializers of one storage: its watch cache shares what encoders of one identifier
	// wrote, and a new view may show the same object in another form.
	identifier string
	infos      []runtime.SerializerInfo
}

var _ runtime.NegotiatedSerializer = &serializer{}

func newSerializer(view *View, listKind, identifier string) *serializer {
	s := &serializer{view: view, listKind: listKind, identifier: "atoll-raw " + identifier}
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

// codecs encode the kinds around custom resources, and negotiate as the stock handler does, which offers CBOR where the
// gate is on. The gate is set before the first shard of a process exists.
var codecs = sync.OnceValue(func() kubeserializer.CodecFactory {
	if !utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
		return apiextensionsserver.Codecs
	}
	return kubeserializer.NewCodecFactory(apiextensionsserver.Scheme, kubeserializer.WithSerializer(cbor.NewSerializerInfo))
})

func isJSON(info runtime.SerializerInfo) bool { return info.MediaType == runtime.ContentTypeJSON }

// textSerializers are the encodings that custom resources have when they are not reduced to metadata or a table.
func textSerializers() []runtime.SerializerInfo {
	var infos []runtime.SerializerInfo
	for _, info := range codecs().SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf {
			infos = append(infos, info)
		}
	}
	return infos
}

// isMetadata tells whether a client asked for metadata alone, and in the kind that the verb answers with: a list is no
// object, and events of a watch hold objects.
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
	own, ok := encoder.(*jsonEncoder)
	if !ok {
		return codecs().EncoderForVersion(encoder, version)
	}
	others := codecs().EncoderForVersion(own.Serializer, version)
	identifier := runtime.Identifier(s.identifier + " " + string(others.Identifier()))
	return &versionEncoder{jsonEncoder: own, others: others, identifier: identifier}
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s *serializer) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return codecs().DecoderToVersion(decoder, version)
}

// jsonEncoder stands in the negotiated media types for writing stored objects, in the place of the stock serializer.
type jsonEncoder struct {
	runtime.Serializer
	serializer *serializer
	pretty     bool
}

// versionEncoder writes stored objects as they are and hands everything else on.
type versionEncoder struct {
	*jsonEncoder
	others     runtime.Encoder
	identifier runtime.Identifier
}

// Identifier implements runtime.Encoder. That of the stock serializer in it tells whether it is pretty.
func (e *versionEncoder) Identifier() runtime.Identifier { return e.identifier }

// Encode implements runtime.Encoder.
func (e *versionEncoder) Encode(obj runtime.Object, w io.Writer) error {
	switch obj := obj.(type) {
	case runtime.CacheableObject:
		return obj.CacheEncode(e.Identifier(), e.Encode, w)
	case *Object:
		return e.printed(w, func(w io.Writer) error { return e.object(obj, w) })
	case *List:
		return e.printed(w, func(w io.Writer) error { return e.list(obj, w) })
	case *metav1.WatchEvent:
		return writeEvent(obj, w)
	}
	return e.others.Encode(obj, w)
}

// printed indents what is written if the client asked for that.
func (e *versionEncoder) printed(w io.Writer, write func(io.Writer) error) error {
	if !e.pretty {
		return write(w)
	}
	var plain, indented bytes.Buffer
	if err := write(&plain); err != nil {
		return err
	}
	if err := json.Indent(&indented, bytes.TrimSpace(plain.Bytes()), "", "  "); err != nil {
		return err
	}
	_, err := w.Write(indented.Bytes())
	return err
}

func (e *versionEncoder) object(obj *Object, w io.Writer) error {
	formed, err := e.formed(obj)
	if err != nil {
		return err
	}
	_, err = w.Write(append(formed.append(make([]byte, 0, formed.size())), '\n'))
	return err
}

// formed returns an object in the form that clients of the view see. A bookmark of the watch cache, which has no
// content, gets the kind that clients expect.
func (e *versionEncoder) formed(obj *Object) (*Object, error) {
	view := e.serializer.view
	if view == nil {
		return obj, nil
	}
	if obj.GroupVersionKind().Kind == "" {
		bookmark := *obj
		bookmark.SetGroupVersionKind(view.newFunc().GetObjectKind().GroupVersionKind())
		return &bookmark, nil
	}
	return view.form(obj)
}

// chunk is how much of a list is gathered before it is written out.
const chunk = 32 << 10

// list writes a list item by item. Its items were formed when they were listed, so that errors came before the first
// byte. The first write is one byte long: by that the response writer knows that more will come.
func (e *versionEncoder) list(list *List, w io.Writer) error {
	metadata, err := json.Marshal(listMeta{
		Continue: list.Continue, RemainingItemCount: list.RemainingItemCount, ResourceVersion: list.ResourceVersion,
	})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, "{"); err != nil {
		return err
	}
	buffer := make([]byte, 0, chunk+chunk/4)
	buffer = fmt.Appendf(buffer, `"apiVersion":%q,"kind":%q,"metadata":%s,"items":[`, e.serializer.view.version.String(), e.serializer.listKind, metadata)
	for i := range list.Items {
		if i > 0 {
			buffer = append(buffer, ',')
		}
		if buffer = list.Items[i].append(buffer); len(buffer) >= chunk {
			if _, err := w.Write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
	}
	_, err = w.Write(append(buffer, "]}\n"...))
	return err
}

// listMeta is the metadata of a list as the stock handler of custom resources writes it.
type listMeta struct {
	Continue           string `json:"continue"`
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
	ResourceVersion    string `json:"resourceVersion"`
}

// writeEvent writes an event around an object that is JSON already, without looking at it again.
func writeEvent(event *metav1.WatchEvent, w io.Writer) error {
	buffer, _ := eventBuffers.Get().(*[]byte)
	defer eventBuffers.Put(buffer)
	text := strconv.AppendQuote(append((*buffer)[:0], `{"type":`...), event.Type)
	text = append(append(text, `,"object":`...), bytes.TrimSpace(event.Object.Raw)...)
	*buffer = append(text, "}\n"...)
	_, err := w.Write(*buffer) // at once: readers count on whole events
	return err
}

// eventBuffers are for events on their way to a watcher: there are as many events as watchers for each change.
var eventBuffers = sync.Pool{New: func() any { return new([]byte) }}
