package crdhandler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

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
	body, err := json.Marshal(object)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object cannot be encoded as JSON: %v", err))
	}
	req = req.Clone(req.Context())
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	req.Header.Set("Content-Type", runtime.ContentTypeJSON)
	return req, nil
}
