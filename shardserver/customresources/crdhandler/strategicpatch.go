package crdhandler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/atoll-dev/atoll/internal/responserecorder"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
)

// maxPatchRetries bounds the retries of a patch after conflicts, as upstream does.
const maxPatchRetries = 5

// isStrategicMergePatch returns whether a request is a strategic merge patch of a kind of Kubernetes (contract 1.7), and an
// empty object of that kind, whose Go type defines how lists are merged. Other kinds have no such type; the upstream
// handler of custom resources rejects strategic merge patches of all kinds.
func isStrategicMergePatch(req *http.Request, info *request.RequestInfo, crd *crdregistry.CompiledCRD) (kind runtime.Object, ok bool) {
	if info.Verb != "patch" {
		return nil, false
	}
	media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || types.PatchType(media) != types.StrategicMergePatchType {
		return nil, false
	}
	kind, err = scheme.Scheme.New(schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: crd.Names.Kind})
	return kind, err == nil
}

// serveStrategicMergePatch gets the object from the upstream handler, applies a strategic merge patch and updates the object. The
// request was authorized as a patch; admission gets an update in both cases.
func (h *Handler) serveStrategicMergePatch(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, stock http.Handler, kind runtime.Object) {
	patch, err := io.ReadAll(http.MaxBytesReader(w, req.Body, h.maxBody))
	if err != nil {
		h.writeError(w, req, info, newBodyError(err))
		return
	}
	var response *responserecorder.Recorder
	for range maxPatchRetries {
		current := doSubrequest(stock, req, info, http.MethodGet, "get", nil)
		if current.Status != http.StatusOK {
			current.WriteTo(w)
			return
		}
		patched, hasResourceVersion, err := strategicMergePatch(current.Body.Bytes(), patch, kind)
		if err != nil {
			h.writeError(w, req, info, err)
			return
		}
		response = doSubrequest(stock, req, info, http.MethodPut, "update", patched)
		if hasResourceVersion || response.Status != http.StatusConflict {
			break
		}
	}
	response.WriteTo(w)
}

// strategicMergePatch returns the patched object, and whether the patch has a resource version. Upstream panics on some
// patches, such as an order of elements that cannot be compared.
func strategicMergePatch(original, patch []byte, kind runtime.Object) (patched []byte, hasResourceVersion bool, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = apierrors.NewBadRequest("the patch cannot be applied: it makes no sense for its kind")
		}
	}()
	var changes map[string]any
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("the patch is no JSON object: %v", err))
	}
	_, hasResourceVersion, _ = unstructured.NestedString(changes, "metadata", "resourceVersion")
	patched, err = strategicpatch.StrategicMergePatch(original, patch, kind)
	if err != nil {
		return nil, hasResourceVersion, apierrors.NewBadRequest(fmt.Sprintf("the patch cannot be applied: %v", err))
	}
	return patched, hasResourceVersion, nil
}

// doSubrequest sends another request for the same object to the upstream handler and records the response. A get returns
// JSON; the response of an update has the media type that the client accepts.
func doSubrequest(stock http.Handler, req *http.Request, info *request.RequestInfo, method, verb string, body []byte) *responserecorder.Recorder {
	subInfo := *info
	subInfo.Verb = verb
	sub := req.Clone(request.WithRequestInfo(req.Context(), &subInfo))
	sub.Method, sub.Body, sub.ContentLength = method, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	sub.Header.Set("Content-Type", runtime.ContentTypeJSON)
	if verb == "get" {
		sub.Header.Set("Accept", runtime.ContentTypeJSON)
		sub.Header.Del("Accept-Encoding")
		sub.URL.RawQuery = ""
	}
	response := responserecorder.New()
	stock.ServeHTTP(response, sub)
	return response
}

func newBodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	}
	return apierrors.NewBadRequest(err.Error())
}
