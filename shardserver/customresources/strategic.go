package customresources

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
)

// strategicTries is how often a patch is tried on an object that others change meanwhile, as stock servers do.
const strategicTries = 5

// strategic tells whether a request is a strategic merge patch of a kind that Kubernetes itself has (contract 1.7), and
// returns an empty object of that kind, whose Go type says how its lists are merged. Kinds of nobody's have no such
// type, and the stock handler of custom resources refuses that patch for all.
func strategic(req *http.Request, info *request.RequestInfo, c *Content) (kind runtime.Object, ok bool) {
	if info.Verb != "patch" {
		return nil, false
	}
	media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || types.PatchType(media) != types.StrategicMergePatchType {
		return nil, false
	}
	kind, err = scheme.Scheme.New(schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: c.names.Kind})
	return kind, err == nil
}

// serveStrategic applies a strategic merge patch to what the stock handler of the content has, and gives it the result
// as an update. The request was authorized as a patch; admission sees an update either way.
func (h *Handler) serveStrategic(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, stock http.Handler, kind runtime.Object) {
	patch, err := io.ReadAll(http.MaxBytesReader(w, req.Body, h.maxBody))
	if err != nil {
		h.refuse(w, req, info, bodyError(err))
		return
	}
	var answer *recorded
	for range strategicTries {
		read := asked(stock, req, info, http.MethodGet, "get", nil)
		if read.status != http.StatusOK {
			read.writeTo(w)
			return
		}
		patched, pinned, err := patchStrategically(read.body.Bytes(), patch, kind)
		if err != nil {
			h.refuse(w, req, info, err)
			return
		}
		answer = asked(stock, req, info, http.MethodPut, "update", patched)
		if pinned || answer.status != http.StatusConflict {
			break
		}
	}
	answer.writeTo(w)
}

// patchStrategically returns the patched object, and whether the patch itself says to which version it applies. Upstream
// panics over some patches, such as an order of elements that cannot be compared.
func patchStrategically(original, patch []byte, kind runtime.Object) (patched []byte, pinned bool, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = apierrors.NewBadRequest("the patch cannot be applied: it makes no sense for its kind")
		}
	}()
	var changes map[string]any
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("the patch is no JSON object: %v", err))
	}
	_, pinned, _ = unstructured.NestedString(changes, "metadata", "resourceVersion")
	patched, err = strategicpatch.StrategicMergePatch(original, patch, kind)
	if err != nil {
		return nil, pinned, apierrors.NewBadRequest(fmt.Sprintf("the patch cannot be applied: %v", err))
	}
	return patched, pinned, nil
}

// asked sends the stock handler another request about the same object and keeps the answer. What is read is JSON; what
// is written is answered as the client wants it.
func asked(stock http.Handler, req *http.Request, info *request.RequestInfo, method, verb string, body []byte) *recorded {
	other := *info
	other.Verb = verb
	sub := req.Clone(request.WithRequestInfo(req.Context(), &other))
	sub.Method, sub.Body, sub.ContentLength = method, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	sub.Header.Set("Content-Type", runtime.ContentTypeJSON)
	if verb == "get" {
		sub.Header.Set("Accept", runtime.ContentTypeJSON)
		sub.Header.Del("Accept-Encoding")
		sub.URL.RawQuery = ""
	}
	answer := &recorded{header: http.Header{}, status: http.StatusOK}
	stock.ServeHTTP(answer, sub)
	return answer
}

func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	}
	return apierrors.NewBadRequest(err.Error())
}

// recorded keeps an answer instead of sending it.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header            { return r.header }
func (r *recorded) WriteHeader(status int)         { r.status = status }
func (r *recorded) Write(part []byte) (int, error) { return r.body.Write(part) }

func (r *recorded) writeTo(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = append(w.Header()[name], values...)
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes()) // a client that went away does not want it
}
