package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/internal/etcdrequest"
	"github.com/atoll-dev/atoll/internal/nesting"
)

// maxPatchOperations bounds a JSON patch, as in stock.
const maxPatchOperations = 10000

// writeRequest is a decoded write request.
type writeRequest struct {
	req    *http.Request
	info   *request.RequestInfo
	body   []byte
	media  string
	dryRun bool
}

// handleWrite decodes a request, calls handle, and responds with the object.
func (h *Handler) handleWrite(resource *servedResource, handle func(resource *servedResource, r writeRequest) (*unstructured.Unstructured, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		code := http.StatusOK
		obj, err := func() (*unstructured.Unstructured, error) {
			r, err := h.parseWriteRequest(req)
			if err != nil {
				return nil, err
			}
			return handle(resource, r)
		}()
		if err != nil {
			h.writeError(etcdrequest.WithTooLarge(err), resource.GroupVersion(), w, req)
			return
		}
		if req.Method == http.MethodPost {
			code = http.StatusCreated
		}
		responsewriters.WriteObjectNegotiated(h.serializer, negotiation.DefaultEndpointRestrictions, resource.GroupVersion(), w, req, code, obj, false)
	}
}

func (h *Handler) parseWriteRequest(req *http.Request) (writeRequest, error) {
	info, _ := request.RequestInfoFrom(req.Context())
	r := writeRequest{req: req.WithContext(request.WithNamespace(req.Context(), info.Namespace)), info: info}
	switch values := req.URL.Query()["dryRun"]; {
	case len(values) == 1 && values[0] == metav1.DryRunAll:
		r.dryRun = true
	case len(values) != 0:
		return r, apierrors.NewBadRequest(fmt.Sprintf("dryRun: %q is not supported, only %q", values, metav1.DryRunAll))
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, h.config.MaxBody+1))
	if err != nil {
		return r, apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
	}
	if int64(len(body)) > h.config.MaxBody {
		return r, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", h.config.MaxBody))
	}
	r.body = body
	if r.media = req.Header.Get("Content-Type"); r.media != "" {
		if r.media, _, err = mime.ParseMediaType(r.media); err != nil {
			return r, newUnsupportedMediaTypeError(req.Header.Get("Content-Type"))
		}
	}
	return r, nil
}

func (h *Handler) create(resource *servedResource, r writeRequest) (*unstructured.Unstructured, error) {
	if r.info.Name != "" {
		return nil, apierrors.NewMethodNotSupported(resource.GroupResource(), "create")
	}
	obj, err := h.decodeRequestObject(resource, r)
	if err != nil {
		return nil, err
	}
	return resource.store.Create(r.req.Context(), obj, r.dryRun)
}

func (h *Handler) update(resource *servedResource, r writeRequest) (*unstructured.Unstructured, error) {
	obj, err := h.decodeRequestObject(resource, r)
	if err != nil {
		return nil, err
	}
	return resource.store.Update(r.req.Context(), r.info.Name, func(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return obj.DeepCopy(), nil // called again on a conflict
	}, r.dryRun)
}

func (h *Handler) patch(resource *servedResource, r writeRequest) (*unstructured.Unstructured, error) {
	apply, err := newPatchFunc(r)
	if err != nil {
		return nil, err
	}
	audit.LogRequestPatch(r.req.Context(), r.body)
	return resource.store.Update(r.req.Context(), r.info.Name, func(existing *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		before, err := existing.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", existing.GetName(), err)
		}
		after, err := apply(before)
		if errors.Is(err, jsonpatch.ErrTestFailed) {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("applying the patch: %v", err))
		}
		if err := nesting.CheckJSON(after, h.config.MaxLevels); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("applying the patch: %v", err))
		}
		return decode(resource, after)
	}, r.dryRun)
}

// newPatchFunc returns a function that applies the patch of a request to an object, both as JSON.
func newPatchFunc(r writeRequest) (func(before []byte) ([]byte, error), error) {
	switch types.PatchType(r.media) {
	case types.MergePatchType:
		return func(before []byte) ([]byte, error) { return jsonpatch.MergePatch(before, r.body) }, nil
	case types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(r.body)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("decoding the patch: %v", err))
		}
		if len(patch) > maxPatchOperations {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a patch has at most %d operations", maxPatchOperations))
		}
		return patch.Apply, nil
	}
	// Without a schema there is neither a strategic merge nor server-side apply.
	return nil, newUnsupportedMediaTypeError(r.media)
}

// decodeRequestObject decodes the object of a create or update request.
func (h *Handler) decodeRequestObject(resource *servedResource, r writeRequest) (*unstructured.Unstructured, error) {
	body := r.body
	switch r.media {
	case "", runtime.ContentTypeJSON, "*/*":
	case runtime.ContentTypeYAML:
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is not valid YAML: %v", err))
		}
	default:
		return nil, newUnsupportedMediaTypeError(r.media)
	}
	obj, err := decode(resource, body)
	if err != nil {
		return nil, err
	}
	audit.LogRequestObject(r.req.Context(), obj, resource.GroupVersion(), resource.GroupVersionResource, "", h.serializer)
	return obj, nil
}

// decode decodes an object and checks that it belongs to the resource.
func decode(resource *servedResource, body []byte) (*unstructured.Unstructured, error) {
	// The metadata accessors rely on the types of fields, which are checked below.
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(body); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object cannot be decoded: %v", err))
	}
	if obj.IsList() {
		return nil, apierrors.NewBadRequest("the object is a list")
	}
	var metadata struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(body, &metadata); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the metadata of the object cannot be decoded: %v", err))
	}
	gvk := obj.GroupVersionKind()
	switch {
	case gvk.Kind == "" || gvk.Version == "":
		return nil, apierrors.NewBadRequest("apiVersion and kind are required")
	case gvk.GroupVersion() != resource.GroupVersion():
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gvk.GroupVersion(), resource.GroupVersion()))
	case !resource.IsCached() && gvk.Kind != resource.Kind:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the kind in the data (%s) does not match the expected kind (%s)", gvk.Kind, resource.Kind))
	}
	return obj, nil
}

func newUnsupportedMediaTypeError(media string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unsupported format: %q", media),
	}}
}
