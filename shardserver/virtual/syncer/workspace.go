// Package syncer holds the virtual workspace of sync agents: what the agent of an export sees of the logical clusters that
// bind it, at /services/syncer/<cluster of the export>:<its name>/clusters/<*|cluster>/.
//
// It is the virtual workspace of the export (package apiexport) with two differences, both described by an annotation of the
// export (package syncerview). The published resources have the names of the service cluster, and only objects that match
// the filters of their publication exist; the agent can write nothing of them but the status, its finalizer and its
// annotations. Related resources, which are other resources of the export and what consumers let it claim, are served
// unchanged. Nothing else is served. Access needs the verb "sync" on the export.
//
// Requests are renamed and restricted here, and served by package apiexport; this package has no storage, and no state other
// than that of open requests and a bounded cache of parsed annotations.
package syncer

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/syncerview"
	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
	"github.com/atoll-dev/atoll/shardserver/virtual/apiexport"
)

// name is the name of the virtual workspace and of its readiness check.
const name = "syncer"

// limits bounds the cache of parsed annotations.
var limits = documents.Limits{Count: 1024, Bytes: 8 << 20, Builds: 2}

// workspace serves the virtual workspace of all sync agents.
type workspace struct {
	config     apiexport.Config
	publisher  *publisher
	base       *virtual.Workspace
	namespaces *storage.Reader[runtime.Object]
}

// New returns the virtual workspace and its watch terminator, which has to run as long as the server. The configuration is
// that of the virtual workspace of exports.
func New(config apiexport.Config) (*virtual.Workspace, *apiexport.WatchTerminator) {
	w := &workspace{
		publisher:  &publisher{exports: config.Exports, parsed: documents.New[[sha256.Size]byte, *syncerview.View](limits)},
		namespaces: storage.NewReader[runtime.Object](config.Registry, namespaces),
	}
	config.View = w.publisher
	w.config = config
	var watches *apiexport.WatchTerminator
	w.base, watches = apiexport.New(config)
	served := *w.base
	served.Name, served.Resolve, served.Authorizer, served.Handler = name, resolve, authorizer.AuthorizerFunc(w.authorize), w.newHandler
	served.Checks = nil
	for _, check := range w.base.Checks {
		served.Checks = append(served.Checks, healthz.NamedCheck(name, check.Check))
	}
	return &served, watches
}

// resolve parses "<cluster of the export>:<its name>/clusters/<*|name>/<path>". The owner of the request is that of the virtual
// workspace of the export.
func resolve(path string) (virtual.Request, bool) {
	resolved, ok := virtual.NewPathResolver(1)(path)
	if !ok {
		return virtual.Request{}, false
	}
	cluster, export, ok := syncerview.ParseID(resolved.Owner[0])
	if !ok {
		return virtual.Request{}, false
	}
	resolved.Owner = []string{cluster, export}
	return resolved, true
}

// authorize authorizes a request by the names of the logical cluster. Lists and watches whose filter reads namespaces need
// the consumer's consent to that, too.
func (w *workspace) authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if target, ok := virtual.From(ctx); ok && attributes.IsResourceRequest() {
		// After an error the authorizer of the export fails, too.
		if found, _, err := w.publisher.find(ctx, target, schema.GroupResource{Group: attributes.GetAPIGroup(), Resource: attributes.GetResource()}); err == nil && found != nil {
			if verb := attributes.GetVerb(); found.Namespaces != nil && (verb == "list" || verb == "watch") {
				decision, reason, err := w.base.Authorizer.Authorize(ctx, renamedAttributes{attributes, namespaces})
				if decision != authorizer.DecisionAllow {
					return decision, reason, err
				}
			}
			attributes = renamedAttributes{attributes, found.name()}
		}
	}
	return w.base.Authorizer.Authorize(ctx, attributes)
}

// renamedAttributes are attributes with another resource.
type renamedAttributes struct {
	authorizer.Attributes
	resource schema.GroupResource
}

func (a renamedAttributes) GetAPIGroup() string { return a.resource.Group }
func (a renamedAttributes) GetResource() string { return a.resource.Resource }

// writeError responds with an error. Errors other than Kubernetes statuses are internal and only logged.
func (w *workspace) writeError(rw http.ResponseWriter, req *http.Request, err error) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		if req.Context().Err() == nil {
			klog.FromContext(req.Context()).Error(err, "Failed to serve the virtual workspace of a sync agent", "path", req.URL.Path)
		}
		err = apierrors.NewInternalError(errors.New("the virtual workspace cannot serve the request"))
	}
	responsewriters.ErrorNegotiated(err, w.config.Serializer, schema.GroupVersion{}, rw, req)
}
