package openapi

import (
	"crypto/sha512"
	"fmt"
	"net/http"
	"time"

	"k8s.io/kube-openapi/pkg/handler"

	"github.com/atoll-dev/atoll/shardserver/discovery"
)

// serveV2 serves the OpenAPI v2 document of a logical cluster.
func (h *Handler) serveV2(w http.ResponseWriter, req *http.Request) {
	set, err := h.resolver.Resolve(req.Context())
	if err != nil {
		discovery.WriteError(w, req, h.serializer, err)
		return
	}
	if len(set.Hidden) == 0 && len(set.Definitions) == 0 {
		h.next.ServeHTTP(w, req)
		return
	}
	target, mediaType := formatsOf("v2").negotiate(req)
	if target == "" {
		w.Header().Set("Vary", varyHeader)
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	build := func() (*encodedDocument, error) {
		content, err := buildV2(req.Context(), set, h.compiledV2())
		return &encodedDocument{content: content, tag: fmt.Sprintf("%X", sha512.Sum512(content)), modified: time.Now()}, err
	}
	document, err := getEncoded(req.Context(), h.cacheV2, set.SchemaKey(), target, acceptsGzip(req), build, handler.ToProtoBinary)
	if err != nil {
		discovery.WriteError(w, req, h.serializer, fmt.Errorf("building the OpenAPI v2 document: %w", err))
		return
	}
	serveDocument(w, req, mediaType, document)
}
