// Package openapi serves OpenAPI v3 and v2 of logical clusters: the documents of built-in resources, without those that
// the logical cluster does not serve, merged with the schemas of its definitions. Documents are built from API sets
// (package discovery) on request and cached by the hash of their input, in bounded caches that all logical clusters
// share. The hash does not require the document, so that the index of OpenAPI v3 needs no build. Unmodified built-in
// documents are served by the upstream handlers.
package openapi

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
)

const (
	pathV2 = "/openapi/v2"
	pathV3 = "/openapi/v3"
)

// The limits of the caches. Builds of OpenAPI v2 are not concurrent: any tenant may have hundreds of large definitions, whose
// merged document takes seconds.
var (
	limitsV3 = documents.Limits{Count: 2048, Bytes: 128 << 20, Builds: 2}
	limitsV2 = documents.Limits{Count: 64, Bytes: 128 << 20, Builds: 1}
)

// Handler serves OpenAPI.
type Handler struct {
	next       http.Handler
	resolver   discovery.APISetResolver
	source     *discovery.Source
	config     *common.OpenAPIV3Config
	serializer runtime.NegotiatedSerializer
	compiledV2 func() *spec.Swagger
	compiledV3 compiledIndex
	cacheV2    *documents.Cache[key, *encodedDocument]
	cacheV3    *documents.Cache[key, *encodedDocument]
}

// key is the cache key of a document in one encoding.
type key struct {
	document   discovery.Hash
	encoding   encoding
	compressed bool
}

// NewHandler returns a handler of the OpenAPI documents of the request's logical cluster. It delegates every other request to next.
// The source has the built-in documents, and config is that of version 3; compiledV2 returns the built-in document of version 2.
func NewHandler(next http.Handler, resolver discovery.APISetResolver, source *discovery.Source, config *common.OpenAPIV3Config, compiledV2 func() *spec.Swagger,
	serializer runtime.NegotiatedSerializer) *Handler {
	return &Handler{
		next: next, resolver: resolver, source: source, config: config, serializer: serializer, compiledV2: compiledV2,
		cacheV2: documents.New[key, *encodedDocument](limitsV2), cacheV3: documents.New[key, *encodedDocument](limitsV3),
	}
}

// Stats returns the statistics of the caches of OpenAPI v2 and v3.
func (h *Handler) Stats() (v2, v3 documents.Stats) { return h.cacheV2.Stats(), h.cacheV3.Stats() }

func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimSuffix(req.URL.Path, "/")
	_, hasCluster := logicalcluster.From(req.Context())
	isV3 := path == pathV3 || strings.HasPrefix(path, pathV3+"/")
	switch {
	case isV3 && !hasCluster:
		err := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true)
		discovery.WriteError(w, req, h.serializer, err)
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		h.next.ServeHTTP(w, req)
	case path == pathV3:
		h.serveIndex(w, req)
	case isV3:
		h.serveV3(w, req, strings.TrimPrefix(path, pathV3+"/"))
	case path == pathV2 && hasCluster:
		h.serveV2(w, req)
	default:
		h.next.ServeHTTP(w, req)
	}
}

// getEncoded returns a document in an encoding, compressed or not. Each of these is cached and converted from the previous one, on
// demand: few are requested in protobuf, and compression dominates the time of a request.
func getEncoded(ctx context.Context, cache *documents.Cache[key, *encodedDocument], of discovery.Hash, target encoding, compressed bool,
	build func() (*encodedDocument, error), toProtobuf func([]byte) ([]byte, error)) (*encodedDocument, error) {
	document, err := cache.Get(ctx, key{of, encodingJSON, false}, func() (*encodedDocument, int64, error) { return withSize(build()) })
	if err == nil && target == encodingProtobuf {
		document, err = getConverted(ctx, cache, key{of, target, false}, document, toProtobuf)
	}
	if err == nil && compressed {
		document, err = getConverted(ctx, cache, key{of, target, true}, document, compress)
	}
	return document, err
}

func getConverted(ctx context.Context, cache *documents.Cache[key, *encodedDocument], target key, source *encodedDocument, convert func([]byte) ([]byte, error)) (*encodedDocument, error) {
	return cache.Get(ctx, target, func() (*encodedDocument, int64, error) {
		content, err := convert(source.content)
		return withSize(&encodedDocument{content: content, tag: source.tag, modified: source.modified, compressed: target.compressed}, err)
	})
}

func withSize(document *encodedDocument, err error) (*encodedDocument, int64, error) {
	if err != nil {
		return nil, 0, err
	}
	return document, int64(len(document.content)), nil
}
