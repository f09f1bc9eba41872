package filters

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// MaxSelectorBytes is the limit of the selectors of a request: the length that proxies accept in URLs several times.
const MaxSelectorBytes = 32 << 10

// WithSelectorLimit refuses requests whose labelSelector and fieldSelector, after decoding the URL, have together more bytes
// than the limit. The stock handlers evaluate them for each object.
func WithSelectorLimit(handler http.Handler, maxBytes int, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.IsResourceRequest && selectorBytes(req, maxBytes) > maxBytes {
			writeError(w, req, serializer, apierrors.NewBadRequest(fmt.Sprintf("labelSelector and fieldSelector may have at most %d bytes", maxBytes)))
			return
		}
		handler.ServeHTTP(w, req)
	})
}

// selectorBytes returns the length of the selectors, or 0 if the whole query is not longer than enough.
func selectorBytes(req *http.Request, enough int) int {
	if len(req.URL.RawQuery) <= enough {
		return 0 // most requests are not parsed
	}
	length := 0
	for name, values := range req.URL.Query() {
		if name != "labelSelector" && name != "fieldSelector" {
			continue
		}
		for _, value := range values {
			length += len(value)
		}
	}
	return length
}
