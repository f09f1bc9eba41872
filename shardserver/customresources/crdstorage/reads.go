package crdstorage

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
)

// Reads serves GET, LIST and WATCH of one content from the bytes in storage.
type Reads struct {
	views      *Views
	namespaced bool
	versions   map[string]*versionReads
	minTimeout time.Duration
}

// versionReads is what Reads needs for one served version.
type versionReads struct {
	scope      handlers.RequestScope
	listKind   string
	deprecated bool
	warning    string
	// bound is what was made for the current view of the version.
	bound atomic.Pointer[boundReads]
}

// boundReads serve through one view. There are two: whole objects must be what the schema of the view makes of them,
// the metadata of an object is the same in all versions.
type boundReads struct {
	view            *View
	whole, metadata *reader
	scope           *handlers.RequestScope
}

// NewReads returns the reads of a content. The definition is the canonical one of the content, with its accepted
// names. Watches end after minRequestTimeout or up to twice as long, unless the client asks otherwise.
func NewReads(views *Views, definition *apiextensionsv1.CustomResourceDefinition, minRequestTimeout time.Duration) *Reads {
	spec, names := &definition.Spec, &definition.Status.AcceptedNames
	r := &Reads{
		views:      views,
		namespaced: spec.Scope == apiextensionsv1.NamespaceScoped,
		versions:   map[string]*versionReads{},
		minTimeout: minRequestTimeout,
	}
	for i := range spec.Versions {
		served := &spec.Versions[i]
		if !served.Served {
			continue
		}
		gv := schema.GroupVersion{Group: spec.Group, Version: served.Name}
		selectable := make([]string, 0, len(served.SelectableFields))
		for _, field := range served.SelectableFields {
			selectable = append(selectable, strings.TrimPrefix(field.JSONPath, "."))
		}
		r.versions[served.Name] = &versionReads{
			scope:      requestScope(gv.WithResource(names.Plural), gv.WithKind(names.Kind), r.namespaced, selectable),
			listKind:   names.ListKind,
			deprecated: served.Deprecated,
			warning:    deprecationWarning(spec, served),
		}
	}
	return r
}

// Serve answers a request of the context's logical cluster (which may be the wildcard), with its RequestInfo in the
// context. It returns false, with nothing written, for what it leaves to the stock handler of the content: other
// verbs, subresources, versions that are not served, other output than JSON or metadata, and everything until the
// stock handler has made the view of the version. Whoever ends a definition in one cluster ends its watches there by
// cancelling the context of the request.
func (r *Reads) Serve(w http.ResponseWriter, req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Subresource != "" || (info.Namespace != "" && !r.namespaced) {
		return false
	}
	served := r.versions[info.APIVersion]
	if served == nil {
		return false
	}
	bound := served.bind(r.views.Version(info.APIVersion), r.namespaced)
	if bound == nil {
		return false
	}
	mediaType, _, err := negotiation.NegotiateOutputMediaType(req, bound.scope.Serializer, bound.scope)
	if err != nil {
		return false
	}
	objects := bound.whole
	switch {
	case isMetadata(mediaType.Convert, info.Verb):
		objects = bound.metadata
	case mediaType.Convert != nil || !isJSON(mediaType.Accepted):
		return false
	}
	handler := handlerFor(info, objects, bound.scope, r.namespaced, r.minTimeout)
	if handler == nil {
		return false
	}
	if served.deprecated {
		warning.AddWarning(req.Context(), "", served.warning)
	}
	instrumented(info, served.deprecated, handler)(w, req)
	return true
}

// bind returns what serves through a view; nil without one.
func (s *versionReads) bind(view *View, namespaced bool) *boundReads {
	if view == nil {
		return nil
	}
	if bound := s.bound.Load(); bound != nil && bound.view == view {
		return bound
	}
	naming := clusterScope
	if namespaced {
		naming = namespaceScope
	}
	scope := s.scope
	scope.Serializer = newSerializer(view, s.listKind, view.id)
	bound := &boundReads{
		view:     view,
		whole:    view.storage.reader(&formedStorage{Interface: view.Interface, view: view}, naming),
		metadata: view.storage.reader(&formedStorage{Interface: view.Interface, view: view, asStored: true}, naming),
		scope:    &scope,
	}
	s.bound.Store(bound)
	return bound
}

// handlerFor returns the stock handler of a read, or nil for what is none.
func handlerFor(info *request.RequestInfo, objects *reader, scope *handlers.RequestScope, namespaced bool, minTimeout time.Duration) http.HandlerFunc {
	switch info.Verb {
	case "get":
		if namespaced && info.Namespace == "" {
			return nil
		}
		return handlers.GetResource(objects, scope)
	case "list":
		return handlers.ListResource(objects, objects, scope, false, minTimeout)
	case "watch":
		return handlers.ListResource(objects, objects, scope, true, minTimeout)
	}
	return nil
}

// instrumented counts requests as the stock handler of custom resources does.
func instrumented(info *request.RequestInfo, deprecated bool, handler http.HandlerFunc) http.HandlerFunc {
	return metrics.InstrumentHandlerFunc(strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, "",
		metrics.CleanScope(info), metrics.APIServerComponent, deprecated, "", handler)
}

// deprecationWarning is what clients of a deprecated version are told: what the definition says, else which newer
// version to use.
func deprecationWarning(spec *apiextensionsv1.CustomResourceDefinitionSpec, deprecated *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if deprecated.DeprecationWarning != nil {
		return *deprecated.DeprecationWarning
	}
	newest := deprecated.Name
	for _, v := range spec.Versions {
		if v.Served && !v.Deprecated && version.CompareKubeAwareVersionStrings(newest, v.Name) < 0 {
			newest = v.Name
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", spec.Group, deprecated.Name, spec.Names.Kind)
	if newest != deprecated.Name {
		text += fmt.Sprintf("; use %s/%s %s", spec.Group, newest, spec.Names.Kind)
	}
	return text
}
