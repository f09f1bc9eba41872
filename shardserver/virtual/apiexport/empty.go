package apiexport

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Maximum durations of a watch of a resource that is not stored on this shard. A watch in one logical cluster does not end
// when the resource gets stored, so that its limit is shorter.
const (
	maxEmptyWatch          = 30 * time.Minute
	maxEmptyWatchInCluster = time.Minute
)

// serveOrEmpty serves a request with content. A list or watch of a resource that no consumer on this shard has bound
// returns no objects instead of 404, so that controllers of a provider need not know which shards have consumers.
func (w *workspace) serveOrEmpty(rw http.ResponseWriter, req *http.Request, c *resourceRequest, content http.Handler) {
	if c.info.Verb != "list" && c.info.Verb != "watch" {
		content.ServeHTTP(rw, req)
		return
	}
	interceptor := &notFoundInterceptor{ResponseWriter: rw}
	content.ServeHTTP(responsewriter.WrapForHTTP1Or2(interceptor), req)
	switch {
	case !interceptor.notFound:
	case c.info.Verb == "watch":
		w.serveEmptyWatch(rw, req, c)
	default:
		w.serveEmptyList(rw, req, c)
	}
}

// notFoundInterceptor discards a response with status 404.
type notFoundInterceptor struct {
	http.ResponseWriter
	notFound, wroteHeader bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (n *notFoundInterceptor) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (n *notFoundInterceptor) WriteHeader(status int) {
	if n.wroteHeader || n.notFound {
		return
	}
	if status == http.StatusNotFound {
		n.notFound = true
		return
	}
	n.wroteHeader = true
	n.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (n *notFoundInterceptor) Write(part []byte) (int, error) {
	if n.notFound {
		return len(part), nil
	}
	n.wroteHeader = true
	return n.ResponseWriter.Write(part)
}

// removeContentHeaders removes the headers that describe the body of a discarded response.
func removeContentHeaders(header http.Header) {
	for _, name := range []string{"Content-Length", "Content-Encoding", "Content-Type", "X-Content-Type-Options"} {
		header.Del(name)
	}
}

// serveEmptyWatch keeps a watch open without events until the resource is stored, or may have consumers, or the timeout is
// over.
func (w *workspace) serveEmptyWatch(rw http.ResponseWriter, req *http.Request, c *resourceRequest) {
	limit := maxEmptyWatch
	if seconds, err := strconv.Atoi(req.URL.Query().Get("timeoutSeconds")); err == nil && seconds > 0 {
		limit = min(limit, time.Duration(seconds)*time.Second)
	}
	if !c.target.Cluster.IsWildcard() {
		limit = min(limit, maxEmptyWatchInCluster)
	}
	removeContentHeaders(rw.Header())
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusOK)
	if flusher, ok := rw.(http.Flusher); ok {
		flusher.Flush()
	}
	timeout := time.After(limit)
	for {
		changed, virtualChanged := w.config.Registry.Changed(), (<-chan struct{})(nil)
		if c.resource.virtual && w.config.VirtualStorage != nil && c.target.Cluster.IsWildcard() {
			virtualChanged = w.config.VirtualStorage.Changed()
		}
		if c.target.Cluster.IsWildcard() && w.isStored(c) {
			return
		}
		select {
		case <-virtualChanged:
			return
		case <-req.Context().Done():
			return
		case <-timeout:
			return
		case <-changed:
		}
	}
}

// isStored reports whether the shard stores objects of the resource with its identity.
func (w *workspace) isStored(c *resourceRequest) bool {
	if c.resource.agnostic {
		return false // the watch ends when a consumer binds the resource
	}
	suffix := "/" + c.resource.identity
	return slices.ContainsFunc(w.config.Registry.AllStorages(), func(r *storage.Resource) bool {
		return r.GVR.GroupResource() == c.resource.GroupResource && strings.HasSuffix(strings.TrimSuffix(r.Prefix, "/"), suffix)
	})
}

// serveEmptyList responds with an empty list at the current resource version.
func (w *workspace) serveEmptyList(rw http.ResponseWriter, req *http.Request, c *resourceRequest) {
	version, err := w.currentResourceVersion(req.Context())
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	encoded, err := json.Marshal(newEmptyList(w.requestedTransform(req), c, metav1.ListMeta{ResourceVersion: version}))
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	removeContentHeaders(rw.Header())
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusOK)
	_, _ = rw.Write(encoded) // the client may have disconnected
}

// requestedTransform returns the kind that the client wants the list transformed to (Table or PartialObjectMetadataList);
// empty for none.
func (w *workspace) requestedTransform(req *http.Request) schema.GroupVersionKind {
	media, ok := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), w.config.Serializer.SupportedMediaTypes(), allTransforms{})
	if !ok || media.Convert == nil {
		return schema.GroupVersionKind{}
	}
	return *media.Convert
}

// allTransforms allows every transformation of meta.k8s.io in content negotiation.
type allTransforms struct{}

func (allTransforms) AllowsMediaTypeTransform(_, _ string, target *schema.GroupVersionKind) bool {
	return target == nil || target.Group == metav1.GroupName
}
func (allTransforms) AllowsServerVersion(string) bool  { return false }
func (allTransforms) AllowsStreamSchema(s string) bool { return s == "watch" }

func newEmptyList(transform schema.GroupVersionKind, c *resourceRequest, meta metav1.ListMeta) any {
	kind := metav1.TypeMeta{Kind: transform.Kind, APIVersion: transform.GroupVersion().String()}
	switch transform.Kind {
	case "Table":
		return &metav1.Table{TypeMeta: kind, ListMeta: meta, ColumnDefinitions: []metav1.TableColumnDefinition{}, Rows: []metav1.TableRow{}}
	case "PartialObjectMetadataList":
		return &metav1.PartialObjectMetadataList{TypeMeta: kind, ListMeta: meta, Items: []metav1.PartialObjectMetadata{}}
	}
	kind.APIVersion = schema.GroupVersion{Group: c.info.APIGroup, Version: c.info.APIVersion}.String()
	kind.Kind = "List"
	if c.resource.schema != nil {
		names := c.resource.schema.Spec.Names
		if kind.Kind = names.ListKind; kind.Kind == "" {
			kind.Kind = names.Kind + "List"
		}
	}
	return &struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []any `json:"items"`
	}{kind, meta, []any{}}
}

// currentResourceVersion returns the current resource version of the context's logical cluster, or of the shard for the wildcard.
func (w *workspace) currentResourceVersion(ctx context.Context) (string, error) {
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.IsWildcard() {
		ctx = logicalcluster.With(ctx, logicalcluster.Shard)
	}
	resource, err := w.config.Registry.Get(apiBindings)
	if err != nil {
		return "", err
	}
	ctx = request.WithNamespace(ctx, "")
	list, err := resource.Store.List(request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: apiBindings.Group, Resource: apiBindings.Resource}), &internalversion.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("reading the resource version of the shard: %w", err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	return accessor.GetResourceVersion(), nil
}
