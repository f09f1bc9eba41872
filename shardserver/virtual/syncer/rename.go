package syncer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// maxBody bounds the body of a write, as the stock server does.
const maxBody = 3 << 20

// kinds are the names of one kind on one side.
type kinds struct{ apiVersion, kind, listKind string }

// translation renames objects of one resource and version.
type translation struct{ workspace, source kinds }

// toSource gives an object, or list, of the logical cluster the names of the service cluster. Others, such as statuses and
// metadata, are returned unchanged.
func (t translation) toSource(raw json.RawMessage) (json.RawMessage, error) {
	return renameObject(raw, t.workspace, t.source)
}

// toWorkspace is the reverse of toSource.
func (t translation) toWorkspace(raw json.RawMessage) (json.RawMessage, error) {
	return renameObject(raw, t.source, t.workspace)
}

func renameObject(raw json.RawMessage, from, to kinds) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	renamed := false
	for key, value := range fields {
		if text, ok := renameField(key, value, from, to); ok {
			fields[key], renamed = text, true
		}
	}
	if !renamed {
		return raw, nil
	}
	return json.Marshal(fields)
}

// renameField returns the value of a field of an object or list, if it has to be renamed.
func renameField(key string, value json.RawMessage, from, to kinds) (renamed json.RawMessage, ok bool) {
	var text string
	if key != "apiVersion" && key != "kind" || json.Unmarshal(value, &text) != nil {
		return nil, false
	}
	switch {
	case key == "apiVersion" && text == from.apiVersion:
		text = to.apiVersion
	case key == "kind" && text == from.kind:
		text = to.kind
	case key == "kind" && text == from.listKind:
		text = to.listKind
	default:
		return nil, false
	}
	value, err := json.Marshal(text)
	return value, err == nil
}

// resourcePath returns the path of a request for a resource, or its subresource.
func resourcePath(gvr schema.GroupVersionResource, info *request.RequestInfo) string {
	parts := []string{"/apis", gvr.Group, gvr.Version}
	if gvr.Group == "" {
		parts = []string{"/api", gvr.Version}
	}
	if info.Namespace != "" {
		parts = append(parts, "namespaces", info.Namespace)
	}
	parts = append(parts, gvr.Resource)
	if len(info.Parts) > 1 {
		parts = append(parts, info.Parts[1:]...)
	}
	return path.Join(parts...)
}

// withResource returns a request for another resource.
func withResource(req *http.Request, info *request.RequestInfo, gvr schema.GroupVersionResource) *http.Request {
	renamed := *info
	renamed.APIPrefix, renamed.APIGroup, renamed.APIVersion, renamed.Resource = "apis", gvr.Group, gvr.Version, gvr.Resource
	if gvr.Group == "" {
		renamed.APIPrefix = "api"
	}
	renamed.Parts = append([]string{gvr.Resource}, info.Parts[min(1, len(info.Parts)):]...)
	renamed.Path = resourcePath(gvr, &renamed)
	out := req.Clone(request.WithRequestInfo(req.Context(), &renamed))
	out.URL.Path, out.URL.RawPath = renamed.Path, ""
	return out
}

// withRenamedBody returns a write with the names of the logical cluster in its body. Server-side apply is refused: it could
// create objects.
func withRenamedBody(req *http.Request, verb string, t translation) (*http.Request, error) {
	media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	allowed := []string{"application/json"}
	if verb == "patch" {
		allowed = []string{string(types.JSONPatchType), string(types.MergePatchType)}
	} else if req.Header.Get("Content-Type") == "" {
		media, err = allowed[0], nil
	}
	if err != nil || !slices.Contains(allowed, media) {
		return nil, negotiation.NewUnsupportedMediaTypeError(allowed)
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest("the body of the request cannot be read")
	case len(body) > maxBody:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	if media != string(types.JSONPatchType) {
		// The server refuses what is not an object.
		if renamed, err := t.toWorkspace(body); err == nil {
			body = renamed
		}
	}
	out := req.Clone(req.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.Header.Set("Content-Type", media)
	return out, nil
}

// withJSON returns a request whose response can be renamed: JSON that is neither compressed nor a table. Clients may request
// metadata only.
func withJSON(req *http.Request, serializer jsonSerializer) (*http.Request, error) {
	media, ok := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), serializer.SupportedMediaTypes(), metadataOnly{})
	if !ok {
		return nil, negotiation.NewNotAcceptableError([]string{"application/json"})
	}
	out := req.Clone(req.Context())
	accept := "application/json"
	if media.Convert != nil {
		accept = fmt.Sprintf("application/json;as=%s;g=%s;v=%s", media.Convert.Kind, media.Convert.Group, media.Convert.Version)
	}
	out.Header.Set("Accept", accept)
	for _, name := range []string{"Accept-Encoding", "Connection", "Upgrade"} {
		out.Header.Del(name)
	}
	return out, nil
}

// metadataOnly allows the transformation to metadata in content negotiation.
type metadataOnly struct{}

func (metadataOnly) AllowsMediaTypeTransform(_, _ string, target *schema.GroupVersionKind) bool {
	return target == nil || target.Group == metav1.GroupName && strings.HasPrefix(target.Kind, "PartialObjectMetadata")
}
func (metadataOnly) AllowsServerVersion(string) bool  { return false }
func (metadataOnly) AllowsStreamSchema(s string) bool { return s == "watch" }
