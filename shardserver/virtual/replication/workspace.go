// Package replication holds the virtual workspace by which the consumers of an export read the objects that another
// workspace offers with a ClusterCachedResource: read-only, one resource, as if the objects were in the workspace of the
// consumer. The owner of a URL is a ClusterCachedResourceEndpointSlice.
//
// Objects of this shard are read where they are, through the handlers of the logical cluster that offers them; those of
// other shards from copies (package replication/copies). Nothing is kept here.
package replication

import (
	"context"
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/openapi"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// Name is that of the virtual workspace, and of its readiness check.
const Name = "replication"

// readVerbs are all that there are.
var readVerbs = []string{"get", "list", "watch"}

// Config is what the virtual workspace is made of. All fields are required.
type Config struct {
	Registry *storage.Registry
	// Exports finds exports and their schemas; References is what follows the references of slices.
	Exports    *apiindex.Resolver
	References cachedresources.Exports
	// Replicas returns what has the objects of other shards; nil on a shard that follows none. It is asked when requests are.
	Replicas func() *replica.Store
	// Bindings tells what consumers have bound.
	Bindings *bindings.Index
	// Authorizer is the shard's whole authorization chain.
	Authorizer authorizer.Authorizer
	// Documents returns the handlers of documents about logical clusters. They are there when requests are.
	Documents func() (*discovery.Handler, *openapi.Handler)
	// Serializer writes errors.
	Serializer runtime.NegotiatedSerializer
}

// Workspace serves the virtual workspace of all slices.
type Workspace struct {
	config Config
	slices *storage.Reader[*cachev1alpha1.ClusterCachedResourceEndpointSlice]
	lookup cachedresources.Lookup
	// content serves logical clusters. It is there when requests are.
	content http.Handler
}

// New returns the virtual workspace.
func New(cfg Config) *Workspace {
	return &Workspace{
		config: cfg,
		slices: storage.NewReader[*cachev1alpha1.ClusterCachedResourceEndpointSlice](cfg.Registry, endpointSlices).Everywhere(),
		lookup: cachedresources.NewLookup(cfg.Registry, cfg.References),
	}
}

var endpointSlices = cachev1alpha1.Resource("clustercachedresourceendpointslices")

// Virtual returns what the virtual workspace is in a set of them.
func (w *Workspace) Virtual() *virtual.Workspace {
	return &virtual.Workspace{
		Name:       Name,
		Resolve:    resolve,
		Authorizer: contentAuthorizer{w},
		Handler:    w.handler,
		IsOpen:     func(virtual.Request, *corev1alpha1.LogicalCluster) bool { return true },
		Checks:     []healthz.HealthChecker{healthz.NamedCheck(Name, w.check)},
	}
}

// resolve reads "<cluster of the slice>/<its name>/clusters/<*|name>/<path>".
func resolve(path string) (virtual.Request, bool) {
	resolved, ok := virtual.OwnerAndCluster(2)(path)
	if !ok || resolved.Owner[1] == "" {
		return virtual.Request{}, false
	}
	_, err := logicalcluster.ParseName(resolved.Owner[0])
	return resolved, err == nil
}

func (w *Workspace) check(*http.Request) error {
	_, err := w.config.Registry.Get(endpointSlices)
	return err
}

// exposedResource is what a slice shows.
type exposedResource struct {
	cachedresources.Sight
	resource schema.GroupResource
	// cluster and slice are where the slice is.
	cluster logicalcluster.Name
	slice   string
}

// find returns what the slice of the request shows, or nil.
func (w *Workspace) find(ctx context.Context, cluster logicalcluster.Name, name string) (*exposedResource, error) {
	slice, err := w.slices.Get(logicalcluster.With(ctx, cluster), "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sight, err := w.lookup.Of(ctx, slice)
	if err != nil || !sight.Complete() {
		return nil, err
	}
	return &exposedResource{sight, schema.GroupResource{Group: sight.Entry.Group, Resource: sight.Entry.Name}, cluster, name}, nil
}

// findForRequest is find for a request to the virtual workspace.
func (w *Workspace) findForRequest(ctx context.Context) (virtual.Request, *exposedResource, error) {
	target, ok := virtual.From(ctx)
	if !ok {
		return target, nil, errors.New("no slice in the request")
	}
	cluster, err := logicalcluster.ParseName(target.Owner[0])
	if err != nil {
		return target, nil, err // resolve lets nothing else pass
	}
	found, err := w.find(ctx, cluster, target.Owner[1])
	return target, found, err
}

// binds returns what a logical cluster has bound, if it is what is shown, so that it is shown it.
func (w *Workspace) binds(ctx context.Context, cluster logicalcluster.Name, what *exposedResource) (bound bindings.BoundResource, is bool, err error) {
	ctx = logicalcluster.With(ctx, cluster)
	bound, ok := w.config.Bindings.Get(ctx, what.resource)
	if !ok {
		bound, ok, err = w.config.Bindings.GetLatest(ctx, what.resource)
	}
	return bound, ok && bound.Virtual && bound.Export == apiindex.ExportKeyOf(what.Export), err
}

// handler serves what was authorized.
func (w *Workspace) handler(content http.Handler) http.Handler {
	w.content = content
	documents := w.documents(content)
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		target, exposed, err := w.findForRequest(req.Context())
		switch {
		case err != nil:
			w.fail(rw, req, err)
		case target.Cluster.IsWildcard():
			w.fail(rw, req, apierrors.NewBadRequest("Wildcard request not supported"))
		case exposed == nil:
			w.fail(rw, req, notFound(req))
		case !ok || !info.IsResourceRequest:
			documents.ServeHTTP(rw, req)
		default:
			w.serveRead(rw, req, info, target.Cluster, exposed)
		}
	})
}

// ServeConsumer serves a request that a consumer has made in its own logical cluster, which is that of the context, and
// that was authorized there, from a slice. It returns false, with nothing written, if there is no such slice.
func (w *Workspace) ServeConsumer(rw http.ResponseWriter, req *http.Request, cluster logicalcluster.Name, slice string) bool {
	ctx := req.Context()
	info, ok := request.RequestInfoFrom(ctx)
	consumer, inCluster := logicalcluster.From(ctx)
	exposed, err := w.find(ctx, cluster, slice)
	switch {
	case err != nil:
		w.fail(rw, req, err)
	case exposed == nil || !ok || !inCluster || w.content == nil:
		return false
	default:
		w.serveRead(rw, req, info, consumer, exposed)
	}
	return true
}

// fail answers with an error. What is no Kubernetes status went wrong inside and is for the log.
func (w *Workspace) fail(rw http.ResponseWriter, req *http.Request, err error) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		if req.Context().Err() == nil {
			klog.FromContext(req.Context()).Error(err, "Serving cached resources failed", "path", req.URL.Path)
		}
		err = apierrors.NewInternalError(errors.New("the virtual workspace cannot answer now"))
	}
	responsewriters.ErrorNegotiated(err, w.config.Serializer, schema.GroupVersion{}, rw, req)
}

func isRead(verb string) bool { return slices.Contains(readVerbs, verb) }
