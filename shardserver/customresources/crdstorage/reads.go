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

// ReadHandler serves GET, LIST and WATCH of one compiled CRD from the stored bytes.
type ReadHandler struct {
	views      *Views
	namespaced bool
	versions   map[string]*versionReadHandler
	minTimeout time.Duration
}

// versionReadHandler are the reads of one served version.
type versionReadHandler struct {
	scope      handlers.RequestScope
	listKind   string
	deprecated bool
	warning    string
	// current are the readers of the current view of the version.
	current atomic.Pointer[viewReadHandler]
}

// viewReadHandler are the readers of one view: one of whole objects, which are decoded and converted by the view, and one of
// metadata, which is equal in all versions.
type viewReadHandler struct {
	view              *View
	objects, metadata *reader
	scope             *handlers.RequestScope
	// initialScope is scope for watches with initial events.
	initialScope *handlers.RequestScope
}

// NewReadHandler returns the reads of a compiled CRD with its definition. Watches end after minRequestTimeout or up to twice as
// long, unless the client requests another timeout.
func NewReadHandler(views *Views, definition *apiextensionsv1.CustomResourceDefinition, minRequestTimeout time.Duration) *ReadHandler {
	spec, names := &definition.Spec, &definition.Status.AcceptedNames
	r := &ReadHandler{
		views:      views,
		namespaced: spec.Scope == apiextensionsv1.NamespaceScoped,
		versions:   map[string]*versionReadHandler{},
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
		r.versions[served.Name] = &versionReadHandler{
			scope:      newRequestScope(gv.WithResource(names.Plural), gv.WithKind(names.Kind), r.namespaced, selectable),
			listKind:   names.ListKind,
			deprecated: served.Deprecated,
			warning:    deprecationWarning(spec, served),
		}
	}
	return r
}

// Serve serves a request to the context's logical cluster, which may be the wildcard. It returns false and writes nothing
// for requests that the upstream handler must serve: other verbs, subresources, versions that are not served, other output
// than JSON or metadata, and all requests before the upstream handler has created the view of the version. Callers end the
// watches of a logical cluster by canceling the context of the request.
func (r *ReadHandler) Serve(w http.ResponseWriter, req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Subresource != "" || (info.Namespace != "" && !r.namespaced) {
		return false
	}
	served := r.versions[info.APIVersion]
	if served == nil {
		return false
	}
	viewHandler := served.handlerForView(r.views.Version(info.APIVersion), r.namespaced)
	if viewHandler == nil {
		return false
	}
	mediaType, _, err := negotiation.NegotiateOutputMediaType(req, viewHandler.scope.Serializer, viewHandler.scope)
	if err != nil {
		return false
	}
	reader := viewHandler.objects
	switch {
	case isMetadata(mediaType.Convert, info.Verb):
		reader = viewHandler.metadata
	case mediaType.Convert != nil || !isJSON(mediaType.Accepted):
		return false
	}
	scope := viewHandler.scope
	if sendsInitialEvents(req) {
		scope = viewHandler.initialScope
	}
	handler := newVerbHandler(info, reader, scope, r.namespaced, r.minTimeout)
	if handler == nil {
		return false
	}
	if served.deprecated {
		warning.AddWarning(req.Context(), "", served.warning)
	}
	withMetrics(info, served.deprecated, handler)(w, req)
	return true
}

// handlerForView returns the readers of a view; nil without a view.
func (v *versionReadHandler) handlerForView(view *View, namespaced bool) *viewReadHandler {
	if view == nil {
		return nil
	}
	if reads := v.current.Load(); reads != nil && reads.view == view {
		return reads
	}
	nameScope := clusterScope
	if namespaced {
		nameScope = namespaceScope
	}
	scope := v.scope
	scope.Serializer = newSerializer(view, v.listKind, view.id, false)
	initialScope := v.scope
	initialScope.Serializer = newSerializer(view, v.listKind, view.id, true)
	reads := &viewReadHandler{
		view:     view,
		objects:  view.storage.reader(&viewStorage{Interface: view.Interface, view: view}, nameScope),
		metadata: view.storage.reader(&viewStorage{Interface: view.Interface, view: view, asStored: true}, nameScope),
		scope:    &scope, initialScope: &initialScope,
	}
	v.current.Store(reads)
	return reads
}

// newVerbHandler returns the upstream handler of a read, or nil for other verbs.
func newVerbHandler(info *request.RequestInfo, objects *reader, scope *handlers.RequestScope, namespaced bool, minTimeout time.Duration) http.HandlerFunc {
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

// withMetrics records the metrics of the upstream handler of custom resources.
func withMetrics(info *request.RequestInfo, deprecated bool, handler http.HandlerFunc) http.HandlerFunc {
	return metrics.InstrumentHandlerFunc(strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, "",
		metrics.CleanScope(info), metrics.APIServerComponent, deprecated, "", handler)
}

// deprecationWarning returns the warning for clients of a deprecated version: that of the definition, else one with the
// newer version to use.
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
