package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/internal/responserecorder"
	"github.com/atoll-dev/atoll/internal/syncerview"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// publishedRequest is a request for a published resource.
type publishedRequest struct {
	*published
	view *workspace
	translation
	target virtual.Request
	// info is that of the request, by the names of the service cluster.
	info *request.RequestInfo
	// resource is the requested one in logical clusters.
	resource schema.GroupVersionResource
	// exports serves the virtual workspace of the export.
	exports http.Handler
}

// newHandler returns the handler of authorized requests.
func (w *workspace) newHandler(content http.Handler) http.Handler {
	exports := w.base.Handler(content)
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		info, hasInfo := request.RequestInfoFrom(req.Context())
		target, ok := virtual.From(req.Context())
		if !ok {
			w.writeError(rw, req, errors.New("no export in the request"))
			return
		}
		if !hasInfo || !info.IsResourceRequest {
			exports.ServeHTTP(rw, req)
			return
		}
		found, hidden, err := w.publisher.find(req.Context(), target, schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
		switch {
		case err != nil:
			w.writeError(rw, req, err)
		case hidden, found == nil && isExpected(req):
			w.writeError(rw, req, newNotFoundError(info))
		case found == nil:
			exports.ServeHTTP(rw, req)
		default:
			w.servePublished(rw, req, &publishedRequest{published: found, view: w, target: target, info: info, exports: exports})
		}
	})
}

// servePublished serves a request for a published resource.
func (w *workspace) servePublished(rw http.ResponseWriter, req *http.Request, c *publishedRequest) {
	renamed, err := w.prepare(req, c)
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	switch c.info.Verb {
	case "list":
		serveStream(rw, renamed, c.exports, func(out io.Writer, in io.Reader) error {
			return c.convertList(out, in, c.Namespaces != nil, func(raw json.RawMessage) (json.RawMessage, error) {
				if shown, err := c.isShown(renamed.Context(), raw); err != nil || !shown {
					return nil, err
				}
				return c.toSource(raw)
			})
		})
	case "watch":
		w.serveWatch(rw, renamed, c)
	default:
		w.serveObject(rw, renamed, c)
	}
}

// serveObject serves a request whose response is one object.
func (w *workspace) serveObject(rw http.ResponseWriter, req *http.Request, c *publishedRequest) {
	response := responserecorder.New()
	c.exports.ServeHTTP(response, req)
	if response.Status < http.StatusBadRequest {
		if matches, err := c.matchesResponse(response.Body.Bytes()); err != nil || !matches {
			if err == nil {
				err = apierrors.NewNotFound(c.Source.GroupResource(), c.info.Name)
			}
			w.writeError(rw, req, err)
			return
		}
		renamed, err := c.toSource(response.Body.Bytes())
		if err != nil {
			w.writeError(rw, req, fmt.Errorf("decoding a response: %w", err))
			return
		}
		response.Body.Reset()
		response.Body.Write(renamed)
		response.Header().Del("Content-Length")
	}
	response.WriteTo(rw)
}

// matchesResponse reports whether the response to a read is an object that the filter selects. The object that was checked before may have
// been an older one from the watch cache, whose consumer has hidden what is served now.
func (p *publishedRequest) matchesResponse(raw []byte) (bool, error) {
	if p.info.Verb != "get" || p.Objects == nil {
		return true, nil
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object); err != nil {
		return false, fmt.Errorf("decoding a response: %w", err)
	}
	return p.selects(&object), nil
}

// prepare validates a request and returns it as one to the virtual workspace of the export.
func (w *workspace) prepare(req *http.Request, c *publishedRequest) (*http.Request, error) {
	if err := c.checkVerb(); err != nil {
		return nil, err
	}
	if err := c.checkRevision(req); err != nil {
		return nil, err
	}
	if err := w.translate(req.Context(), c); err != nil {
		return nil, err
	}
	source := schema.GroupVersionResource{Group: c.info.APIGroup, Version: c.info.APIVersion, Resource: c.info.Resource}
	if c.info.Path != resourcePath(source, c.info) && c.info.Path != resourcePath(source, c.info)+"/" {
		return nil, newNotFoundError(c.info)
	}
	renamed, err := withJSON(req, jsonSerializer{w.config.Serializer})
	if err != nil {
		return nil, err
	}
	if c.info.Verb == "patch" || c.info.Verb == "update" {
		if renamed, err = withRenamedBody(renamed, c.info.Verb, c.translation); err != nil {
			return nil, err
		}
		renamed = renamed.WithContext(virtual.WithAdmission(renamed.Context(), writeRules{c.name(), c.selects}))
	}
	if renamed, err = w.restrict(renamed, c); err != nil {
		return nil, err
	}
	return withResource(renamed, c.info, c.resource), nil
}

// checkVerb fails for a request that published resources do not support.
func (p *publishedRequest) checkVerb() error {
	verbs := objectVerbs
	switch {
	case p.info.Subresource == "status":
		verbs = statusVerbs
	case p.info.Subresource != "":
		return newNotFoundError(p.info)
	}
	if !slices.Contains(verbs, p.info.Verb) {
		return apierrors.NewMethodNotSupported(p.Source.GroupResource(), p.info.Verb)
	}
	return nil
}

// isExpected reports whether the caller expects a published resource, and nothing else of that name.
func isExpected(req *http.Request) bool { return req.Header.Get(syncerview.RevisionHeader) != "" }

// checkRevision fails if the caller expects another description of the resource than this shard has. A watch expires then, so that
// its client lists again.
func (p *publishedRequest) checkRevision(req *http.Request) error {
	switch {
	case !isExpected(req) || req.Header.Get(syncerview.RevisionHeader) == p.Revision:
		return nil
	case p.info.Verb == "watch":
		return apierrors.NewResourceExpired("the description of the resource is another one: list its objects again")
	}
	return apierrors.NewConflict(p.Source.GroupResource(), p.info.Name, errors.New("this shard has another description of the resource"))
}

// translate sets the names in logical clusters.
func (w *workspace) translate(ctx context.Context, c *publishedRequest) error {
	version, ok := c.Source.WorkspaceVersionOf(c.info.APIVersion)
	if !ok {
		return newNotFoundError(c.info)
	}
	resourceSchema, err := w.config.Exports.GetSchema(ctx, c.export.Cluster, c.schema)
	if apierrors.IsNotFound(err) {
		return newNotFoundError(c.info)
	}
	if err != nil {
		return fmt.Errorf("reading APIResourceSchema %q of %q: %w", c.schema, c.export.Cluster, err)
	}
	c.resource = c.name().WithVersion(version)
	names := resourceSchema.Spec.Names
	c.workspace = kinds{c.resource.GroupVersion().String(), names.Kind, names.ListKind}
	if names.ListKind == "" {
		c.workspace.listKind = names.Kind + "List"
	}
	c.source = kinds{schema.GroupVersion{Group: c.Source.Group, Version: c.info.APIVersion}.String(), c.Source.Kind, c.Source.Kind + "List"}
	return nil
}

// restrict restricts a request to the objects that match the filter.
func (w *workspace) restrict(req *http.Request, c *publishedRequest) (*http.Request, error) {
	if c.info.Verb == "list" || c.info.Verb == "watch" {
		return req.WithContext(crdstorage.WithFilter(req.Context(), c.selects)), nil
	}
	if c.target.Cluster.IsWildcard() {
		return req, nil // refused by the virtual workspace of the export
	}
	visible, err := w.isVisible(req.Context(), c)
	if err == nil && !visible {
		err = apierrors.NewNotFound(c.Source.GroupResource(), c.info.Name)
	}
	return req, err
}

func newNotFoundError(info *request.RequestInfo) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, "", 0, true)
}
