// Package virtualstorage serves bound resources with virtual storage (storage.virtual in the APIExport), whose objects
// are not stored in the logical clusters that bind them but served by the virtual workspace of an endpoint slice.
//
// Requests are authorized in the logical cluster of the consumer like those for stored resources. They are forwarded to
// the virtual workspace within the process; the package must not follow endpoints of other servers.
package virtualstorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/backends"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Config holds the dependencies of the handler. All fields are required.
type Config struct {
	Registry *storage.Registry
	Exports  Exports
	// Bindings reports changes of bindings.
	Bindings *bindings.Index
	// Replication serves requests from a ClusterCachedResourceEndpointSlice.
	Replication Replication
	// ShardName is the name of this shard's Shard object in root.
	ShardName  string
	Serializer runtime.NegotiatedSerializer
}

// Replication serves requests from slices, as *replication.Workspace does. Methods return false if the slice does not exist.
type Replication interface {
	ServeConsumer(w http.ResponseWriter, req *http.Request, cluster logicalcluster.Name, slice string) bool
	ServeAudience(w http.ResponseWriter, req *http.Request, cluster logicalcluster.Name, slice string, audience crdstorage.Audience, schema types.UID) bool
}

// Exports returns exports, as *apiindex.Resolver does.
type Exports interface {
	Get(ctx context.Context, export bindings.ExportKey) (*apisv1alpha2.APIExport, error)
}

const (
	// hopsHeader counts how often servers forwarded a request from one virtual storage to another.
	hopsHeader = backends.HopsHeader
	maxHops    = 4
)

// hasTooManyHops reports whether a request was forwarded too often. An invalid header counts as too often.
func hasTooManyHops(req *http.Request) bool {
	text := req.Header.Get(hopsHeader)
	if text == "" {
		return false
	}
	hops, err := strconv.Atoi(text)
	return err != nil || hops < 0 || hops >= maxHops
}

// Handler serves requests to the logical cluster of a consumer. Requests carry the bound resource in their context
// (bindings.BoundResourceFrom).
type Handler struct {
	Config
	shards   endpoints.ShardLister
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
}

// New returns the handler of bound resources with virtual storage.
func New(cfg Config) *Handler {
	return &Handler{cfg, endpoints.NewShardLister(cfg.Registry), storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, apisv1alpha2.Resource("apibindings"))}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	bound, ok := bindings.BoundResourceFrom(req.Context())
	if !ok {
		h.writeError(w, req, errors.New("no bound resource in the request"))
		return
	}
	if hasTooManyHops(req) {
		h.writeError(w, req, fmt.Errorf("%s: header %s is %q", bound.GroupResource, hopsHeader, req.Header.Get(hopsHeader)))
		return
	}
	h.serve(w, req, bound.Export, bound.GroupResource, h.Replication.ServeConsumer)
}

// ServeAll serves a list or watch of a resource of an export over all logical clusters of this shard that bind it, or those of
// them that allows returns, unless it is nil. It responds with 404 if there is none.
func (h *Handler) ServeAll(w http.ResponseWriter, req *http.Request, export bindings.ExportKey, gr schema.GroupResource, allows func(context.Context) (sets.Set[logicalcluster.Name], error)) {
	if hasTooManyHops(req) {
		h.writeError(w, req, fmt.Errorf("%s: header %s is %q", gr, hopsHeader, req.Header.Get(hopsHeader)))
		return
	}
	all := consumers{h.bindings, h.Bindings, export, gr, allows}
	if err := all.checkResumable(req); err != nil {
		responsewriters.ErrorNegotiated(err, h.Serializer, schema.GroupVersion{}, w, req)
		return
	}
	found, uid, err := all.list(req.Context())
	switch {
	case err != nil:
		h.writeError(w, req, fmt.Errorf("%s: listing the bindings of the export: %w", gr, err))
	case len(found) == 0:
		responsewriters.ErrorNegotiated(apierrors.NewNotFound(gr, ""), h.Serializer, schema.GroupVersion{}, w, req)
	default:
		h.serve(w, req, export, gr, func(w http.ResponseWriter, req *http.Request, cluster logicalcluster.Name, slice string) bool {
			return h.Replication.ServeAudience(w, req, cluster, slice, all, uid)
		})
	}
}

// Changed returns a channel that is closed when the consumers of any resource change.
func (h *Handler) Changed() <-chan struct{} {
	_, changed := h.Bindings.VirtualVersion()
	return changed
}

// serve serves a request from the slice of a resource of an export.
func (h *Handler) serve(w http.ResponseWriter, req *http.Request, export bindings.ExportKey, gr schema.GroupResource, serve func(http.ResponseWriter, *http.Request, logicalcluster.Name, string) bool) {
	cluster, slice, err := h.findSlice(req.Context(), export, gr)
	if err != nil {
		h.writeError(w, req, fmt.Errorf("%s: %w", gr, err))
		return
	}
	if !serve(w, req, cluster, slice) {
		h.writeError(w, req, fmt.Errorf("%s: endpoint slice %q of %q exposes no resource", gr, slice, cluster))
	}
}

// findSlice returns the logical cluster and name of the endpoint slice of a resource of an export.
func (h *Handler) findSlice(ctx context.Context, key bindings.ExportKey, gr schema.GroupResource) (logicalcluster.Name, string, error) {
	none := logicalcluster.Name{}
	export, err := h.Exports.Get(ctx, key)
	if err != nil {
		return none, "", fmt.Errorf("reading the export: %w", err)
	}
	at := slices.IndexFunc(export.Spec.Resources, func(entry apisv1alpha2.ResourceSchema) bool {
		return entry.Group == gr.Group && entry.Name == gr.Resource && entry.Storage.Virtual != nil
	})
	if at < 0 {
		return none, "", errors.New("the export has no virtual storage for the resource")
	}
	candidates, err := endpoints.Read(ctx, h.Registry, key.Cluster, export.Spec.Resources[at].Storage.Virtual.Reference)
	if err != nil {
		return none, "", err
	}
	shard, err := h.shards.Registered(ctx, h.ShardName)
	if err != nil {
		return none, "", fmt.Errorf("reading the Shard: %w", err)
	}
	address, err := endpoints.Choose(candidates, shard.Labels, shard.Spec.VirtualWorkspaceURL)
	if err != nil {
		return none, "", err
	}
	prefix := strings.TrimSuffix(shard.Spec.VirtualWorkspaceURL, "/") + "/services/replication/"
	path, ok := strings.CutPrefix(address, prefix)
	cluster, slice, hasSlice := strings.Cut(path, "/")
	name, err := logicalcluster.ParseName(cluster)
	if !ok || !hasSlice || err != nil {
		return none, "", fmt.Errorf("endpoint %q is not below this shard's virtual workspace of cached resources; others are not supported", address)
	}
	return name, slice, nil
}

// writeError responds with 500, or with 503 while the objects of other shards are not synced. Details concern the provider and
// are only logged.
func (h *Handler) writeError(w http.ResponseWriter, req *http.Request, err error) {
	if req.Context().Err() == nil {
		klog.FromContext(req.Context()).V(2).Info("A resource with virtual storage cannot be served", "path", req.URL.Path, "err", err)
	}
	if storage.IsNotSynced(err) {
		err = apierrors.NewServiceUnavailable("the location of the objects of this resource is not synced yet")
	} else {
		err = apierrors.NewInternalError(errors.New("the objects of this resource cannot be read; its provider has to fix the virtual storage of the export"))
	}
	responsewriters.ErrorNegotiated(err, h.Serializer, schema.GroupVersion{}, w, req)
}
