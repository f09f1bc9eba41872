package crdhandler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/atoll-dev/atoll/internal/nesting"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
)

// newProtobufDecoder returns a decoder for the kinds of Kubernetes.
func newProtobufDecoder(maxLevels int) runtime.Decoder {
	return nesting.NewChecker(scheme.Scheme).Decoder(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), maxLevels)
}

// hasProtobufBody returns whether the body of a request is an object in protobuf, on which the upstream handler of custom
// resources panics. It decodes protobuf of its own kinds, such as DeleteOptions and Scale.
func hasProtobufBody(req *http.Request, info *request.RequestInfo) bool {
	if (info.Verb != "create" && info.Verb != "update") || (info.Subresource != "" && info.Subresource != "status") {
		return false
	}
	media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return err == nil && media == runtime.ContentTypeProtobuf
}

// protobufToJSON returns the request with its object in JSON, for a kind of Kubernetes (contract 1.7). Other kinds have no
// protobuf schema and fail with 415.
func (h *Handler) protobufToJSON(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, crd *crdregistry.CompiledCRD) (*http.Request, error) {
	kind := schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: crd.Names.Kind}
	if !scheme.Scheme.Recognizes(kind) {
		return nil, negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeCBOR})
	}
	message, err := io.ReadAll(http.MaxBytesReader(w, req.Body, h.maxBody))
	if err != nil {
		return nil, newBodyError(err)
	}
	object, actual, err := h.protobuf.Decode(message, &kind, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v", kind.Kind, err))
	}
	object.GetObjectKind().SetGroupVersionKind(*actual)
	setEmpty(reflect.ValueOf(object))
	body, err := json.Marshal(object)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object cannot be encoded as JSON: %v", err))
	}
	req = req.Clone(req.Context())
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	req.Header.Set("Content-Type", runtime.ContentTypeJSON)
	return req, nil
}

// setEmpty sets the lists and maps that JSON always has and that are nil: protobuf does not distinguish an empty one from none, and validation
// would refuse null where the schema requires the field.
func setEmpty(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			setEmpty(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			setEmpty(v.Index(i))
		}
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Struct {
			return // keys and values of Kubernetes' maps are texts, bytes and quantities, or structs
		}
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			setEmpty(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		if _, encodesItself := v.Interface().(json.Marshaler); encodesItself || reflect.PointerTo(v.Type()).Implements(marshaler) {
			return
		}
		for i := range v.NumField() {
			setEmptyField(v.Field(i), v.Type().Field(i))
		}
	}
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func setEmptyField(v reflect.Value, field reflect.StructField) {
	if !field.IsExported() {
		return
	}
	tag := field.Tag.Get("json")
	isOptional := strings.Contains(tag, ",omitempty") || strings.Contains(tag, ",omitzero") || tag == "-"
	isBytes := v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8
	switch {
	case isOptional || isBytes:
	case v.Kind() == reflect.Slice && v.IsNil():
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	case v.Kind() == reflect.Map && v.IsNil():
		v.Set(reflect.MakeMap(v.Type()))
	}
	setEmpty(v)
}
