package openapi

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/atoll-dev/atoll/shardserver/discovery"
)

// compiledIndex is the index of the stock documents. It does not change.
type compiledIndex struct {
	mu   sync.Mutex
	read *index
}

type index struct {
	// tags are the hashes of the stock documents by name, "api/v1" or "apis/<group>/<version>" for example.
	tags map[string]string
	// salt is a hash of them all. It is part of the tags of other documents, which change when the program does.
	salt []byte
}

func (h *Handler) compiledDocuments(ctx context.Context) (*index, error) {
	h.compiledV3.mu.Lock()
	defer h.compiledV3.mu.Unlock()
	if h.compiledV3.read != nil {
		return h.compiledV3.read, nil
	}
	raw, err := h.source.AskRaw(ctx, pathV3, "application/json")
	if err != nil {
		return nil, err
	}
	var stock handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(raw, &stock); err != nil {
		return nil, fmt.Errorf("decoding the index of what is compiled in: %w", err)
	}
	salt := sha256.Sum256(raw)
	read := &index{tags: make(map[string]string, len(stock.Paths)), salt: salt[:]}
	for name, entry := range stock.Paths {
		_, read.tags[name], _ = strings.Cut(entry.ServerRelativeURL, "?hash=")
	}
	h.compiledV3.read = read
	return read, nil
}

// tag returns the tag of a document that is not the stock one.
func (i *index) tag(document discovery.Hash) string {
	return fmt.Sprintf("%X", sha256.Sum256(append(document[:], i.salt...)))
}

// groupVersion returns the version that a document is about, if it is about one.
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
	compiled, err := h.compiledDocuments(req.Context())
	if err != nil {
		discovery.Fail(w, req, h.serializer, err)
		return
	}
	set, err := h.sets.Of(req.Context())
	if err != nil {
		discovery.Fail(w, req, h.serializer, err)
		return
	}
	shown, err := h.cacheV3.Get(req.Context(), key{of: set.SchemaKey(), form: asIndex}, func() (*encoded, int64, error) {
		content, err := json.Marshal(compiled.in(set))
		return sized(&encoded{content: content, tag: fmt.Sprintf("%X", sha512.Sum512(content)), modified: time.Now()}, err)
	})
	if err != nil {
		discovery.Fail(w, req, h.serializer, fmt.Errorf("making the index of OpenAPI documents: %w", err))
		return
	}
	send(w, req, "application/json", shown)
}

// in returns the index of a set.
func (i *index) in(set *discovery.Set) handler3.OpenAPIV3Discovery {
	shown := handler3.OpenAPIV3Discovery{Paths: make(map[string]handler3.OpenAPIV3DiscoveryGroupVersion, len(i.tags))}
	add := func(name, tag string) {
		shown.Paths[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: pathV3 + "/" + name + "?hash=" + tag}
	}
	for name, stock := range i.tags {
		if version, ok := groupVersion(name); !ok {
			if shows(set, name) {
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
			if _, known := shown.Paths[name]; served.Served && !known {
				add(name, i.tagOf(set, name, version))
			}
		}
	}
	return shown
}

func (i *index) tagOf(set *discovery.Set, name string, version schema.GroupVersion) string {
	document, plain := set.VersionKey(version)
	if plain {
		return i.tags[name]
	}
	return i.tag(document)
}

// serveV3 serves one document: the stock one, or one that is made for sets like that of the logical cluster.
func (h *Handler) serveV3(w http.ResponseWriter, req *http.Request, name string) {
	compiled, err := h.compiledDocuments(req.Context())
	if err != nil {
		discovery.Fail(w, req, h.serializer, err)
		return
	}
	stock, isStock := compiled.tags[name]
	version, isVersion := groupVersion(name)
	set, err := h.sets.Of(req.Context())
	if err != nil {
		discovery.Fail(w, req, h.serializer, err)
		return
	}
	isStock = isStock && shows(set, name)
	if isVersion {
		document, plain := set.VersionKey(version)
		if set.Serves(version) && !plain {
			h.serveBuilt(w, req, set, version, document, compiled)
			return
		}
		isStock = isStock && set.Serves(version)
	}
	switch {
	case !isStock:
		http.NotFound(w, req)
	case outdated(w, req, stock):
	default:
		h.next.ServeHTTP(w, req)
	}
}

func (h *Handler) serveBuilt(w http.ResponseWriter, req *http.Request, set *discovery.Set, version schema.GroupVersion, of discovery.Hash, compiled *index) {
	wanted, mediaType := formatsOf("v3").negotiate(req)
	if wanted == "" {
		w.Header().Set("Vary", varies)
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	tag := compiled.tag(of)
	if outdated(w, req, tag) {
		return
	}
	build := func() (*encoded, error) {
		content, err := h.buildV3(req.Context(), set, version, compiled)
		return &encoded{content: content, tag: tag, modified: time.Now()}, err
	}
	document, err := get(req.Context(), h.cacheV3, of, wanted, acceptsGzip(req), build, handler3.ToV3ProtoBinary)
	if err != nil {
		discovery.Fail(w, req, h.serializer, fmt.Errorf("making the OpenAPI v3 document of %s: %w", version, err))
		return
	}
	immutable(w, req)
	send(w, req, mediaType, document)
}
