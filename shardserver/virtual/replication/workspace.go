// Package replication holds the virtual workspace of cached resources: consumers of an export read the objects of one
// resource that another workspace publishes with a ClusterCachedResource, as if they were in the consumer's workspace.
// The owner of a URL is a ClusterCachedResourceEndpointSlice. All access is read-only.
//
// Objects of this shard are read where they are stored, those of other shards from replicas (package cachedresources/replica),
// with the schema that the consumer has bound, so that all shards answer the same. The package must not store objects.
package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/cachedresources"
	"github.com/atoll-dev/atoll/shardserver/cachedresources/replica"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/openapi"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// Name is the name of the virtual workspace and of its readiness check.
const Name = "replication"

// readVerbs are the allowed verbs.
var readVerbs = []string{"get", "list", "watch"}

// Config holds the dependencies of the virtual workspace. All fields are required.
type Config struct {
	Registry *storage.Registry
	// Exports returns exports and schemas; References resolves the references of slices.
	Exports    *apiindex.Resolver
	References cachedresources.Exports
	// Originals serves the objects of this shard.
	Originals *replica.Store
	// Replicas returns the store of objects of other shards, or nil without one. It is called when requests are served.
	Replicas func() *replica.Store
	// Bindings indexes the bound resources of consumers.
	Bindings *bindings.Index
	// Authorizer is the shard's whole authorization chain.
	Authorizer authorizer.UnconditionalAuthorizer
	// Documents returns the discovery and OpenAPI handlers of logical clusters. It is called when requests are served.
	Documents func() (*discovery.Handler, *openapi.Handler)
	// Serializer encodes errors.
	Serializer runtime.NegotiatedSerializer
}

// Workspace serves the virtual workspace of all slices.
type Workspace struct {
	config Config
	slices *storage.Reader[*cachev1alpha1.ClusterCachedResourceEndpointSlice]
	lookup cachedresources.SliceResolver
	// content serves logical clusters. It is set before the first request.
	content http.Handler
}

// New returns the virtual workspace.
func New(cfg Config) *Workspace {
	return &Workspace{
		config: cfg,
		slices: storage.NewReader[*cachev1alpha1.ClusterCachedResourceEndpointSlice](cfg.Registry, endpointSlices).Global(),
		lookup: cachedresources.NewSliceResolver(cfg.Registry, cfg.References),
	}
}

var endpointSlices = cachev1alpha1.Resource("clustercachedresourceendpointslices")

// VirtualWorkspace returns the virtual workspace for registration.
func (w *Workspace) VirtualWorkspace() *virtual.Workspace {
	return &virtual.Workspace{
		Name:       Name,
		Resolve:    resolve,
		Authorizer: contentAuthorizer{w},
		Handler:    w.newHandler,
		IsOpen:     func(virtual.Request, *corev1alpha1.LogicalCluster) bool { return true },
		Checks:     []healthz.HealthChecker{healthz.NamedCheck(Name, w.checkReady)},
	}
}

// resolve parses "<cluster of the slice>/<its name>/clusters/<*|name>/<path>".
func resolve(path string) (virtual.Request, bool) {
	resolved, ok := virtual.NewPathResolver(2)(path)
	if !ok || resolved.Owner[1] == "" {
		return virtual.Request{}, false
	}
	_, err := logicalcluster.ParseName(resolved.Owner[0])
	return resolved, err == nil
}

func (w *Workspace) checkReady(*http.Request) error {
	_, err := w.config.Registry.Get(endpointSlices)
	return err
}

// exposedResource is the resource that a slice exposes.
type exposedResource struct {
	cachedresources.ResolvedSlice
	resource schema.GroupResource
	// cluster and slice identify the slice, selection is its selector of objects as text.
	cluster   logicalcluster.Name
	slice     string
	selection string
}

// selector returns what objects consumers see: those that are published, and that the slice selects.
func (e *exposedResource) selector() (labels.Selector, error) {
	published := cachedresources.Selector(e.Resource)
	selected, err := labels.Parse(e.selection)
	if err != nil {
		return nil, fmt.Errorf("the slice has no valid selector: %w", err)
	}
	requirements, _ := selected.Requirements()
	return published.Add(requirements...), nil
}

// findExposed returns the resource that a slice exposes, or nil.
func (w *Workspace) findExposed(ctx context.Context, cluster logicalcluster.Name, name string) (*exposedResource, error) {
	slice, err := w.slices.Get(logicalcluster.With(ctx, cluster), "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	result, err := w.lookup.Resolve(ctx, slice)
	if err != nil || !result.Complete() {
		return nil, err
	}
	return &exposedResource{result, schema.GroupResource{Group: result.Entry.Group, Resource: result.Entry.Name}, cluster, name, slice.Annotations[cachev1alpha1.LabelSelectorAnnotationKey]}, nil
}

// findForRequest is findExposed for the slice of a request.
func (w *Workspace) findForRequest(ctx context.Context) (virtual.Request, *exposedResource, error) {
	target, ok := virtual.From(ctx)
	if !ok {
		return target, nil, errors.New("no slice in the request")
	}
	cluster, err := logicalcluster.ParseName(target.Owner[0])
	if err != nil {
		return target, nil, err // resolve has validated it
	}
	found, err := w.findExposed(ctx, cluster, target.Owner[1])
	return target, found, err
}

// getBinding returns the bound resource of a logical cluster with the name of the exposed one, and whether it is bound
// to the same export.
func (w *Workspace) getBinding(ctx context.Context, cluster logicalcluster.Name, exposed *exposedResource) (bound bindings.BoundResource, isBound bool, err error) {
	ctx = logicalcluster.With(ctx, cluster)
	bound, ok := w.config.Bindings.Get(ctx, exposed.resource)
	if !ok {
		bound, ok, err = w.config.Bindings.GetLatest(ctx, exposed.resource)
	}
	return bound, ok && bound.Virtual && bound.Export == apiindex.ExportKeyOf(exposed.Export), err
}

// newHandler returns the handler of authorized requests.
func (w *Workspace) newHandler(content http.Handler) http.Handler {
	w.content = content
	documents := w.newDocumentHandler(content)
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		target, exposed, err := w.findForRequest(req.Context())
		switch {
		case err != nil:
			w.writeError(rw, req, err)
		case target.Cluster.IsWildcard():
			w.writeError(rw, req, apierrors.NewBadRequest("Wildcard request not supported"))
		case exposed == nil:
			w.writeError(rw, req, newNotFoundError(req))
		case !ok || !info.IsResourceRequest:
			documents.ServeHTTP(rw, req)
		default:
			w.serveRead(rw, req, info, target.Cluster, exposed)
		}
	})
}

// ServeConsumer serves a request in the logical cluster of a consumer, which is that of the context and where the request
// was authorized, from a slice. It returns false without a response if the slice does not exist.
func (w *Workspace) ServeConsumer(rw http.ResponseWriter, req *http.Request, cluster logicalcluster.Name, slice string) bool {
	ctx := req.Context()
	info, ok := request.RequestInfoFrom(ctx)
	consumer, inCluster := logicalcluster.From(ctx)
	exposed, err := w.findExposed(ctx, cluster, slice)
	switch {
	case err != nil:
		w.writeError(rw, req, err)
	case exposed == nil || !ok || !inCluster || w.content == nil:
		return false
	default:
		w.serveRead(rw, req, info, consumer, exposed)
	}
	return true
}

// ServeAudience is ServeConsumer for all logical clusters of an audience, which have bound the resource with a schema.
func (w *Workspace) ServeAudience(rw http.ResponseWriter, req *http.Request, cluster logicalcluster.Name, slice string, audience crdstorage.Audience, schema types.UID) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	exposed, err := w.findExposed(req.Context(), cluster, slice)
	if err == nil && (exposed == nil || !ok || w.content == nil) {
		return false
	}
	if err == nil {
		err = checkRead(req, info, exposed)
	}
	if err != nil {
		w.writeError(rw, req, err)
		return true
	}
	w.serveProjection(rw, req, info, schema, crdstorage.Projection{Audience: audience}, exposed)
	return true
}

// writeError responds with an error. Errors other than Kubernetes statuses are internal and only logged.
func (w *Workspace) writeError(rw http.ResponseWriter, req *http.Request, err error) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		if req.Context().Err() == nil {
			klog.FromContext(req.Context()).Error(err, "Failed to serve cached resources", "path", req.URL.Path)
		}
		err = apierrors.NewInternalError(errors.New("the virtual workspace cannot serve the request"))
	}
	responsewriters.ErrorNegotiated(err, w.config.Serializer, schema.GroupVersion{}, rw, req)
}

func isRead(verb string) bool { return slices.Contains(readVerbs, verb) }
