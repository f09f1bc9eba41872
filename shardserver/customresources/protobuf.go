package customresources

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
)

// messages decodes the kinds that Kubernetes itself has.
var messages = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// inProtobuf tells whether a request brings an object in protobuf. The stock handler of custom resources panics over
// that. What it reads itself (options of a deletion, a scale) may be protobuf.
func inProtobuf(req *http.Request, info *request.RequestInfo) bool {
	if (info.Verb != "create" && info.Verb != "update") || (info.Subresource != "" && info.Subresource != "status") {
		return false
	}
	media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return err == nil && media == runtime.ContentTypeProtobuf
}

// translated returns the request with its object in JSON, if it is of a kind that Kubernetes itself has (contract 1.7).
// Nobody can read protobuf of another kind: that fails with 415.
func (h *Handler) translated(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, c *Content) (*http.Request, error) {
	kind := schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: c.names.Kind}
	if !scheme.Scheme.Recognizes(kind) {
		return nil, negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeCBOR})
	}
	message, err := io.ReadAll(http.MaxBytesReader(w, req.Body, h.maxBody))
	if err != nil {
		return nil, bodyError(err)
	}
	object, actual, err := messages.Decode(message, &kind, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v", kind.Kind, err))
	}
	object.GetObjectKind().SetGroupVersionKind(*actual)
	body, err := json.Marshal(object)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object has no form in JSON: %v", err))
	}
	req = req.Clone(req.Context())
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	req.Header.Set("Content-Type", runtime.ContentTypeJSON)
	return req, nil
}
