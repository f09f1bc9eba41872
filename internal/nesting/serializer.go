package nesting

import (
	"bytes"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/recognizer"
)

// Checker checks inputs of the decoders of a scheme.
type Checker struct {
	scheme   *runtime.Scheme
	messages messages
}

// NewChecker returns a Checker for decoders that create objects of a scheme.
func NewChecker(scheme *runtime.Scheme) *Checker { return &Checker{scheme: scheme} }

// format is how a decoder reads its input.
type format int

const (
	formatJSON format = iota
	formatYAML
	formatCBOR
	formatProtobuf
	formatRawProtobuf
	// formatRecognized is the format of a decoder for several encodings, which recognizes them by their first bytes.
	formatRecognized
)

var formats = map[string]format{
	runtime.ContentTypeJSON: formatJSON, runtime.ContentTypeYAML: formatYAML,
	runtime.ContentTypeCBOR: formatCBOR, runtime.ContentTypeProtobuf: formatProtobuf,
}

// cborPrefix is the prefix by which the stock decoder recognizes CBOR.
var cborPrefix = []byte{0xd9, 0xd9, 0xf7}

// checkFormat checks an input in the format that a decoder reads.
func (c *Checker) checkFormat(f format, data []byte, limit int, defaults *schema.GroupVersionKind, into runtime.Object) error {
	switch f {
	case formatJSON:
		return CheckJSON(data, limit)
	case formatYAML:
		return CheckYAML(data, limit)
	case formatCBOR:
		return CheckCBOR(data, limit)
	case formatProtobuf:
		return c.CheckProtobuf(data, limit, defaults, into)
	case formatRawProtobuf:
		return c.CheckRawProtobuf(data, limit, defaults, into)
	case formatRecognized:
		return c.checkFormat(recognize(data), data, limit, defaults, into)
	}
	return nil
}

func recognize(data []byte) format {
	switch {
	case bytes.HasPrefix(data, envelopePrefix):
		return formatProtobuf
	case bytes.HasPrefix(data, cborPrefix):
		return formatCBOR
	case bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")):
		return formatJSON
	default:
		return formatYAML
	}
}

// Decoder returns a decoder that refuses objects that nest deeper than limit. The given one must recognize the encoding, like the
// UniversalDeserializer of a codec factory, or decode protobuf with its envelope.
func (c *Checker) Decoder(decoder runtime.Decoder, limit int) runtime.Decoder {
	return &checkedDecoder{decoder, c, formatRecognized, limit}
}

// Serializer returns a serializer whose decoders refuse objects that nest deeper than limit, with status 400.
func (c *Checker) Serializer(inner runtime.NegotiatedSerializer, limit int) runtime.NegotiatedSerializer {
	return &negotiatedSerializer{inner, c.infos(inner.SupportedMediaTypes(), limit)}
}

// StorageSerializer is Serializer for stored objects.
func (c *Checker) StorageSerializer(inner runtime.StorageSerializer, limit int) runtime.StorageSerializer {
	return &storageSerializer{inner, c.infos(inner.SupportedMediaTypes(), limit), c.Decoder(inner.UniversalDeserializer(), limit)}
}

type negotiatedSerializer struct {
	runtime.NegotiatedSerializer
	infos []runtime.SerializerInfo
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s *negotiatedSerializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.infos }

type storageSerializer struct {
	runtime.StorageSerializer
	infos     []runtime.SerializerInfo
	universal runtime.Decoder
}

// SupportedMediaTypes implements runtime.StorageSerializer.
func (s *storageSerializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.infos }

// UniversalDeserializer implements runtime.StorageSerializer.
func (s *storageSerializer) UniversalDeserializer() runtime.Decoder { return s.universal }

// infos returns media types with decoders that check.
func (c *Checker) infos(inner []runtime.SerializerInfo, limit int) []runtime.SerializerInfo {
	infos := make([]runtime.SerializerInfo, 0, len(inner))
	for _, info := range inner {
		f, ok := formats[info.MediaType]
		if !ok {
			f = formatRecognized
		}
		info.Serializer = c.serializer(info.Serializer, f, limit)
		info.StrictSerializer = c.serializer(info.StrictSerializer, f, limit)
		info.PrettySerializer = c.serializer(info.PrettySerializer, f, limit)
		if info.StreamSerializer != nil {
			if f == formatProtobuf {
				f = formatRawProtobuf
			}
			stream := *info.StreamSerializer
			stream.Serializer = c.serializer(stream.Serializer, f, limit)
			info.StreamSerializer = &stream
		}
		infos = append(infos, info)
	}
	return infos
}

func (c *Checker) serializer(inner runtime.Serializer, f format, limit int) runtime.Serializer {
	if inner == nil {
		return nil
	}
	checked := &checkedSerializer{checkedDecoder{inner, c, f, limit}, inner}
	if _, ok := inner.(runtime.NondeterministicEncoder); ok {
		return &nondeterministicSerializer{checked}
	}
	return checked
}

// checkedDecoder checks its input.
type checkedDecoder struct {
	runtime.Decoder
	checker *Checker
	format  format
	limit   int
}

// Decode implements runtime.Decoder. Errors have the status 400.
func (d *checkedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if err := d.checker.checkFormat(d.format, data, d.limit, defaults, into); err != nil {
		return nil, nil, newBadRequest(err)
	}
	return d.Decoder.Decode(data, defaults, into)
}

// RecognizesData implements recognizer.RecognizingDecoder. The result of a decoder that does not implement it is unknown.
func (d *checkedDecoder) RecognizesData(peek []byte) (ok, unknown bool, err error) {
	if recognizing, ok := d.Decoder.(recognizer.RecognizingDecoder); ok {
		return recognizing.RecognizesData(peek)
	}
	return false, true, nil
}

// checkedSerializer encodes like its inner serializer.
type checkedSerializer struct {
	checkedDecoder
	inner runtime.Serializer
}

// Encode implements runtime.Encoder.
func (s *checkedSerializer) Encode(obj runtime.Object, w io.Writer) error {
	return s.inner.Encode(obj, w)
}

// Identifier implements runtime.Encoder.
func (s *checkedSerializer) Identifier() runtime.Identifier { return s.inner.Identifier() }

// EncodeWithAllocator implements runtime.EncoderWithAllocator.
func (s *checkedSerializer) EncodeWithAllocator(obj runtime.Object, w io.Writer, memory runtime.MemoryAllocator) error {
	if allocating, ok := s.inner.(runtime.EncoderWithAllocator); ok {
		return allocating.EncodeWithAllocator(obj, w, memory)
	}
	return s.inner.Encode(obj, w)
}

// nondeterministicSerializer is a checkedSerializer of CBOR, whose maps have no order.
type nondeterministicSerializer struct{ *checkedSerializer }

// EncodeNondeterministic implements runtime.NondeterministicEncoder.
func (s *nondeterministicSerializer) EncodeNondeterministic(obj runtime.Object, w io.Writer) error {
	return s.inner.(runtime.NondeterministicEncoder).EncodeNondeterministic(obj, w) // checked by the constructor
}

func newBadRequest(err error) error { return apierrors.NewBadRequest(err.Error()) }
