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

// How long a watch without objects stays open at most. That in one logical cluster is not told when there is something to
// see, and is begun anew more often.
const (
	longest          = 30 * time.Minute
	longestInCluster = time.Minute
)

// orEmpty serves a request by content. Where a list or a watch finds no such resource, because nobody on this shard has
// bound it, there are just no objects: controllers of a provider need not know which shard has consumers.
func (w *workspace) orEmpty(rw http.ResponseWriter, req *http.Request, c *call, content http.Handler) {
	if c.info.Verb != "list" && c.info.Verb != "watch" {
		content.ServeHTTP(rw, req)
		return
	}
	answer := &unlessMissing{ResponseWriter: rw}
	content.ServeHTTP(responsewriter.WrapForHTTP1Or2(answer), req)
	switch {
	case !answer.missing:
	case c.info.Verb == "watch":
		w.hold(rw, req, c)
	default:
		w.empty(rw, req, c)
	}
}

// unlessMissing keeps an answer back that says that there is no such resource.
type unlessMissing struct {
	http.ResponseWriter
	missing, begun bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (u *unlessMissing) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (u *unlessMissing) WriteHeader(status int) {
	if u.begun || u.missing {
		return
	}
	if status == http.StatusNotFound {
		u.missing = true
		return
	}
	u.begun = true
	u.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (u *unlessMissing) Write(part []byte) (int, error) {
	if u.missing {
		return len(part), nil
	}
	u.begun = true
	return u.ResponseWriter.Write(part)
}

// clean removes what the answer that was kept back said of itself.
func clean(header http.Header) {
	for _, name := range []string{"Content-Length", "Content-Encoding", "Content-Type", "X-Content-Type-Options"} {
		header.Del(name)
	}
}

// hold keeps a watch open without events: until there are objects to see, or for as long as the client asked.
func (w *workspace) hold(rw http.ResponseWriter, req *http.Request, c *call) {
	limit := longest
	if seconds, err := strconv.Atoi(req.URL.Query().Get("timeoutSeconds")); err == nil && seconds > 0 {
		limit = min(limit, time.Duration(seconds)*time.Second)
	}
	if !c.target.Cluster.IsWildcard() {
		limit = min(limit, longestInCluster)
	}
	clean(rw.Header())
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusOK)
	if flusher, ok := rw.(http.Flusher); ok {
		flusher.Flush()
	}
	timeout := time.After(limit)
	for {
		changed := w.config.Registry.Changed()
		if c.target.Cluster.IsWildcard() && w.stored(c) {
			return
		}
		select {
		case <-req.Context().Done():
			return
		case <-timeout:
			return
		case <-changed:
		}
	}
}

// stored tells whether the shard stores objects of a resource with its identity.
func (w *workspace) stored(c *call) bool {
	suffix := "/" + c.offered.identity
	return slices.ContainsFunc(w.config.Registry.Stored(), func(r *storage.Resource) bool {
		return r.GVR.GroupResource() == c.offered.GroupResource && strings.HasSuffix(strings.TrimSuffix(r.Prefix, "/"), suffix)
	})
}

// empty answers a list with no objects, as of now.
func (w *workspace) empty(rw http.ResponseWriter, req *http.Request, c *call) {
	version, err := w.now(req.Context())
	if err != nil {
		w.fail(rw, req, err)
		return
	}
	encoded, err := json.Marshal(emptyList(w.accepted(req), c, metav1.ListMeta{ResourceVersion: version}))
	if err != nil {
		w.fail(rw, req, err)
		return
	}
	clean(rw.Header())
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusOK)
	_, _ = rw.Write(encoded) // a client that has gone needs no answer
}

// accepted returns the kind that a client wants lists to be turned into; none if it takes them as they are.
func (w *workspace) accepted(req *http.Request) schema.GroupVersionKind {
	media, ok := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), w.config.Serializer.SupportedMediaTypes(), anyForm{})
	if !ok || media.Convert == nil {
		return schema.GroupVersionKind{}
	}
	return *media.Convert
}

// anyForm allows every form that lists are asked for in.
type anyForm struct{}

func (anyForm) AllowsMediaTypeTransform(_, _ string, target *schema.GroupVersionKind) bool {
	return target == nil || target.Group == metav1.GroupName
}
func (anyForm) AllowsServerVersion(string) bool  { return false }
func (anyForm) AllowsStreamSchema(s string) bool { return s == "watch" }

func emptyList(form schema.GroupVersionKind, c *call, meta metav1.ListMeta) any {
	kind := metav1.TypeMeta{Kind: form.Kind, APIVersion: form.GroupVersion().String()}
	switch form.Kind {
	case "Table":
		return &metav1.Table{TypeMeta: kind, ListMeta: meta, ColumnDefinitions: []metav1.TableColumnDefinition{}, Rows: []metav1.TableRow{}}
	case "PartialObjectMetadataList":
		return &metav1.PartialObjectMetadataList{TypeMeta: kind, ListMeta: meta, Items: []metav1.PartialObjectMetadata{}}
	}
	kind.APIVersion = schema.GroupVersion{Group: c.info.APIGroup, Version: c.info.APIVersion}.String()
	kind.Kind = "List"
	if c.offered.described != nil {
		names := c.offered.described.Spec.Names
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

// now returns the resource version that the shard has come to.
func (w *workspace) now(ctx context.Context) (string, error) {
	resource, err := w.config.Registry.Get(apiBindings)
	if err != nil {
		return "", err
	}
	ctx = request.WithNamespace(logicalcluster.With(ctx, logicalcluster.Shard), "")
	list, err := resource.Store.List(request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: apiBindings.Group, Resource: apiBindings.Resource}), &internalversion.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("finding out the resource version of the shard: %w", err)
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	return of.GetResourceVersion(), nil
}
