package openapi

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/atoll-dev/atoll/shardserver/discovery"
)

// compiledIndex is the cached index of the built-in documents.
type compiledIndex struct {
	mu     sync.Mutex
	cached *index
}

type index struct {
	// tags are the hashes of the built-in documents by name, "api/v1" or "apis/<group>/<version>" for example.
	tags map[string]string
	// salt is a hash of all built-in documents. It is part of the tags of other documents, which also depend on the binary.
	salt []byte
}

func (h *Handler) compiledIndex(ctx context.Context) (*index, error) {
	h.compiledV3.mu.Lock()
	defer h.compiledV3.mu.Unlock()
	if h.compiledV3.cached != nil {
		return h.compiledV3.cached, nil
	}
	raw, err := h.source.GetRaw(ctx, pathV3, "application/json")
	if err != nil {
		return nil, err
	}
	var stock handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(raw, &stock); err != nil {
		return nil, fmt.Errorf("decoding the index of the built-in documents: %w", err)
	}
	salt := sha256.Sum256(raw)
	read := &index{tags: make(map[string]string, len(stock.Paths)), salt: salt[:]}
	for name, entry := range stock.Paths {
		_, read.tags[name], _ = strings.Cut(entry.ServerRelativeURL, "?hash=")
	}
	h.compiledV3.cached = read
	return read, nil
}

// tag returns the tag of a document that is not a built-in one.
func (i *index) tag(document discovery.Hash) string {
	return fmt.Sprintf("%X", sha256.Sum256(append(document[:], i.salt...)))
}

// groupVersion returns the group version of a document, if it has one.
func groupVersion(name string) (schema.GroupVersion, bool) {
	parts := strings.Split(name, "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	default:
		return schema.GroupVersion{}, false
	}
}

func (h *Handler) serveIndex(w http.ResponseWriter, req *http.Request) {
	compiled, err := h.compiledIndex(req.Context())
	if err != nil {
		discovery.WriteError(w, req, h.serializer, err)
		return
	}
	set, err := h.resolver.Resolve(req.Context())
	if err != nil {
		discovery.WriteError(w, req, h.serializer, err)
		return
	}
	document, err := h.cacheV3.Get(req.Context(), key{document: set.SchemaKey(), encoding: encodingIndex}, func() (*encodedDocument, int64, error) {
		content, err := json.Marshal(compiled.forAPISet(set))
		return withSize(&encodedDocument{content: content, tag: fmt.Sprintf("%X", sha512.Sum512(content)), modified: time.Now()}, err)
	})
	if err != nil {
		discovery.WriteError(w, req, h.serializer, fmt.Errorf("building the index of OpenAPI documents: %w", err))
		return
	}
	serveDocument(w, req, "application/json", document)
}

// forAPISet returns the index of an API set.
func (i *index) forAPISet(set *discovery.APISet) handler3.OpenAPIV3Discovery {
	paths := handler3.OpenAPIV3Discovery{Paths: make(map[string]handler3.OpenAPIV3DiscoveryGroupVersion, len(i.tags))}
	add := func(name, tag string) {
		paths.Paths[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: pathV3 + "/" + name + "?hash=" + tag}
	}
	for name, stock := range i.tags {
		if version, ok := groupVersion(name); !ok {
			if hasDocument(set, name) {
				add(name, stock)
			}
		} else if set.Serves(version) {
			add(name, i.tagOf(set, name, version))
		}
	}
	for _, definition := range set.Definitions {
		for _, served := range definition.Object.Spec.Versions {
			version := schema.GroupVersion{Group: definition.Object.Spec.Group, Version: served.Name}
			name := strings.TrimPrefix(discovery.PathOf(version), "/")
			if _, known := paths.Paths[name]; served.Served && !known {
				add(name, i.tagOf(set, name, version))
			}
		}
	}
	for _, group := range definedGroups(set) {
		if _, known := paths.Paths["apis/"+group]; !known {
			add("apis/"+group, i.tag(groupKey(group)))
		}
	}
	return paths
}

func (i *index) tagOf(set *discovery.APISet, name string, version schema.GroupVersion) string {
	document, plain := set.VersionKey(version)
	if plain {
		return i.tags[name]
	}
	return i.tag(document)
}

// serveV3 serves one document: the built-in one, the merged one of the API set, or that of a group of definitions.
func (h *Handler) serveV3(w http.ResponseWriter, req *http.Request, name string) {
	compiled, err := h.compiledIndex(req.Context())
	if err != nil {
		discovery.WriteError(w, req, h.serializer, err)
		return
	}
	stock, isStock := compiled.tags[name]
	version, isVersion := groupVersion(name)
	set, err := h.resolver.Resolve(req.Context())
	if err != nil {
		discovery.WriteError(w, req, h.serializer, err)
		return
	}
	isStock = isStock && hasDocument(set, name)
	if isVersion {
		document, plain := set.VersionKey(version)
		if set.Serves(version) && !plain {
			h.serveBuilt(w, req, name, document, compiled, func() ([]byte, error) { return h.buildV3(req.Context(), set, version, compiled) })
			return
		}
		isStock = isStock && set.Serves(version)
	}
	group, isGroup := strings.CutPrefix(name, "apis/")
	switch {
	case isStock && redirectOutdated(w, req, stock):
	case isStock:
		h.next.ServeHTTP(w, req)
	case isGroup && slices.Contains(definedGroups(set), group):
		h.serveBuilt(w, req, name, groupKey(group), compiled, func() ([]byte, error) { return h.buildGroup(group) })
	default:
		http.NotFound(w, req)
	}
}

// serveBuilt serves a document that is not a built-in one. It is built if it is not cached.
func (h *Handler) serveBuilt(w http.ResponseWriter, req *http.Request, name string, of discovery.Hash, compiled *index, buildContent func() ([]byte, error)) {
	target, mediaType := formatsOf("v3").negotiate(req)
	if target == "" {
		w.Header().Set("Vary", varyHeader)
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	tag := compiled.tag(of)
	if redirectOutdated(w, req, tag) {
		return
	}
	build := func() (*encodedDocument, error) {
		content, err := buildContent()
		return &encodedDocument{content: content, tag: tag, modified: time.Now()}, err
	}
	document, err := getEncoded(req.Context(), h.cacheV3, of, target, acceptsGzip(req), build, handler3.ToV3ProtoBinary)
	if err != nil {
		discovery.WriteError(w, req, h.serializer, fmt.Errorf("building the OpenAPI v3 document %s: %w", name, err))
		return
	}
	setImmutable(w, req)
	serveDocument(w, req, mediaType, document)
}
