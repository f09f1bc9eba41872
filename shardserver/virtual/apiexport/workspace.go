package apiexport

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/openapi"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// name is the name of the virtual workspace and of its readiness check.
const name = "apiexport"

// Config holds the dependencies of the virtual workspace. All fields but View and VirtualStorage are required.
type Config struct {
	// View restricts what is offered; nil for the virtual workspace of exports itself.
	View View
	// Registry reads bindings and claimed objects.
	Registry *storage.Registry
	// Exports returns exports and schemas, and notifies about changes.
	Exports ExportSource
	// Authorizer is the shard's whole authorization chain.
	Authorizer authorizer.UnconditionalAuthorizer
	// Bindings finds the resources that consumers have bound, for claims without an identity.
	Bindings *bindings.Index
	// Policy authorizes requests for claimed resources of other exports.
	Policy PolicyAuthorizer
	// VirtualStorage serves the export's own resources whose objects are not stored, over all consumers; nil if nothing does.
	VirtualStorage VirtualStorage
	// CustomSubresources means that claims of custom subresources of other exports are served.
	CustomSubresources bool
	// Documents returns the discovery and OpenAPI handlers of logical clusters. It is called when requests are served.
	Documents func() (*discovery.Handler, *openapi.Handler)
	// Serializer encodes errors.
	Serializer runtime.NegotiatedSerializer
}

// View restricts the virtual workspace of exports for callers with another permission, and changes how it describes what it
// offers. Its own virtual workspace wraps the one that New returns.
type View interface {
	// Verb is the verb on an APIExport that callers need instead of permissions on apiexports/content.
	Verb() string
	// Offer returns whether a resource is offered. It is one of the export itself (own), or claimed, or that of bindings.
	// Watches of it end when entry changes.
	Offer(ctx context.Context, export *apisv1alpha2.APIExport, resource schema.GroupResource, own, claimed bool) (entry string, offered bool, err error)
	// Describe returns the definition by which discovery and OpenAPI describe an offered resource of the export itself.
	Describe(ctx context.Context, export *apisv1alpha2.APIExport, definition discovery.Definition) (discovery.Definition, error)
}

// VirtualStorage serves resources with virtual storage, as *virtualstorage.Handler does.
type VirtualStorage interface {
	// ServeAll serves a list or watch over all consumers of an export on this shard that allow it, or responds with 404 if there is
	// none. allows returns them, and changes with the channel of Changed only; nil for all.
	ServeAll(w http.ResponseWriter, req *http.Request, export bindings.ExportKey, resource schema.GroupResource, allows func(context.Context) (sets.Set[logicalcluster.Name], error))
	// Changed returns a channel that is closed when the consumers of any such resource change.
	Changed() <-chan struct{}
}

// ExportSource is Exports with change notifications.
type ExportSource interface {
	Exports
	Subscribe(changed func(bindings.ExportKey))
}

// workspace serves the virtual workspace of all exports.
type workspace struct {
	config     Config
	apis       apiSource
	consumers  bindingLister
	authorizer stepsAuthorizer
	watches    *WatchTerminator
}

// New returns the virtual workspace and its watch terminator, which has to run as long as the server.
func New(cfg Config) (*virtual.Workspace, *WatchTerminator) {
	w := &workspace{config: cfg, consumers: bindingLister{storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, apiBindings)}}
	w.apis = apiSource{
		exports: cfg.Exports, view: cfg.View, customSubresources: cfg.CustomSubresources,
		identities: identityResolver{consumers: w.consumers, bound: cfg.Bindings},
	}
	w.authorizer = stepsAuthorizer{apiSource: w.apis, consumers: w.consumers, rbac: cfg.Authorizer, policy: cfg.Policy}
	w.watches = newWatchTerminator(w.authorizer, w.consumers.reader)
	cfg.Exports.Subscribe(w.watches.onExportChange)
	cfg.Bindings.Subscribe(w.watches.onBoundChange)
	return &virtual.Workspace{
		Name:       name,
		Resolve:    resolve,
		Authorizer: w.authorizer,
		Handler:    w.newHandler,
		IsOpen:     func(virtual.Request, *corev1alpha1.LogicalCluster) bool { return true },
		Checks:     []healthz.HealthChecker{healthz.NamedCheck(name, w.checkReady)},
	}, w.watches
}

// resolve parses "<cluster of the export>/<its name>/clusters/<*|name>/<path>".
func resolve(path string) (virtual.Request, bool) {
	resolved, ok := virtual.NewPathResolver(2)(path)
	if !ok || resolved.Owner[1] == "" {
		return virtual.Request{}, false
	}
	_, err := logicalcluster.ParseName(resolved.Owner[0])
	return resolved, err == nil
}

func (w *workspace) checkReady(*http.Request) error {
	resource, err := w.config.Registry.Get(apisv1alpha2.Resource("apiexports"))
	if err != nil {
		return err
	}
	if storage, ok := resource.Store.(interface{ ReadinessCheck() error }); ok {
		return storage.ReadinessCheck()
	}
	return nil
}

// newHandler returns the handler of authorized requests.
func (w *workspace) newHandler(content http.Handler) http.Handler {
	documents, resources := w.newDocumentHandler(content), w.newResourceHandler(content)
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.IsResourceRequest {
			resources.ServeHTTP(rw, req)
			return
		}
		documents.ServeHTTP(rw, req)
	})
}

// writeError responds with an error. Errors other than Kubernetes statuses are internal and only logged.
func (w *workspace) writeError(rw http.ResponseWriter, req *http.Request, err error) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		if req.Context().Err() == nil {
			klog.FromContext(req.Context()).Error(err, "Failed to serve the virtual workspace of an export", "path", req.URL.Path)
		}
		err = apierrors.NewInternalError(errors.New("the virtual workspace cannot serve the request"))
	}
	responsewriters.ErrorNegotiated(err, w.config.Serializer, schema.GroupVersion{}, rw, req)
}
