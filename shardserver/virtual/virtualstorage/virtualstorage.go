// Package virtualstorage serves bound resources with virtual storage (storage.virtual in the APIExport), whose objects
// are not stored in the logical clusters that bind them but served by the virtual workspace of an endpoint slice.
//
// Requests are authorized in the logical cluster of the consumer like those for stored resources. They are forwarded to
// the virtual workspace within the process; the package must not follow endpoints of other servers.
package virtualstorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Config holds the dependencies of the handler. All fields are required.
type Config struct {
	Registry *storage.Registry
	Exports  Exports
	// Replication serves a request from a ClusterCachedResourceEndpointSlice. It returns false if the slice does not exist.
	Replication func(w http.ResponseWriter, req *http.Request, cluster logicalcluster.Name, slice string) bool
	// ShardName is the name of this shard's Shard object in root.
	ShardName  string
	Serializer runtime.NegotiatedSerializer
}

// Exports returns exports, as *apiindex.Resolver does.
type Exports interface {
	Get(ctx context.Context, export bindings.ExportKey) (*apisv1alpha2.APIExport, error)
}

const (
	// hopsHeader counts how often servers forwarded a request from one virtual storage to another.
	hopsHeader = "X-Kcp-Virtual-Resource-Hops"
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

type handler struct {
	Config
	shards endpoints.ShardLister
}

// New returns the handler of bound resources with virtual storage. Requests carry the bound resource in their context
// (bindings.BoundResourceFrom).
func New(cfg Config) http.Handler {
	return &handler{cfg, endpoints.NewShardLister(cfg.Registry)}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	bound, ok := bindings.BoundResourceFrom(req.Context())
	if !ok {
		h.writeError(w, req, errors.New("no bound resource in the request"))
		return
	}
	if hasTooManyHops(req) {
		h.writeError(w, req, fmt.Errorf("%s: header %s is %q", bound.GroupResource, hopsHeader, req.Header.Get(hopsHeader)))
		return
	}
	cluster, slice, err := h.findSlice(req.Context(), bound)
	if err != nil {
		h.writeError(w, req, fmt.Errorf("%s: %w", bound.GroupResource, err))
		return
	}
	if !h.Replication(w, req, cluster, slice) {
		h.writeError(w, req, fmt.Errorf("%s: endpoint slice %q of %q exposes no resource", bound.GroupResource, slice, cluster))
	}
}

// findSlice returns the logical cluster and name of the endpoint slice of a bound resource.
func (h *handler) findSlice(ctx context.Context, bound bindings.BoundResource) (logicalcluster.Name, string, error) {
	none := logicalcluster.Name{}
	export, err := h.Exports.Get(ctx, bound.Export)
	if err != nil {
		return none, "", fmt.Errorf("reading the export: %w", err)
	}
	at := slices.IndexFunc(export.Spec.Resources, func(entry apisv1alpha2.ResourceSchema) bool {
		return entry.Group == bound.Group && entry.Name == bound.GroupResource.Resource && entry.Storage.Virtual != nil
	})
	if at < 0 {
		return none, "", errors.New("the export has no virtual storage for the resource")
	}
	candidates, err := h.listEndpoints(ctx, bound.Export.Cluster, export.Spec.Resources[at].Storage.Virtual)
	if err != nil {
		return none, "", err
	}
	shard, err := h.shards.Get(ctx, h.ShardName)
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

// listEndpoints returns status.endpoints of an endpoint slice of any kind in the logical cluster of the export. For exports
// on other shards, the kind has to be one that shards publish.
func (h *handler) listEndpoints(ctx context.Context, cluster logicalcluster.Name, virtual *apisv1alpha2.ResourceSchemaStorageVirtual) ([]endpoints.Endpoint, error) {
	reference := virtual.Reference
	kind := schema.GroupKind{Kind: reference.Kind}
	if reference.APIGroup != nil {
		kind.Group = *reference.APIGroup
	}
	ctx = logicalcluster.With(ctx, cluster)
	resource, err := h.Registry.ResolveKind(ctx, kind)
	if err != nil {
		return nil, err
	}
	if resource == nil {
		return nil, fmt.Errorf("the workspace of the export does not serve %s", kind)
	}
	object, err := h.readSlice(ctx, resource, reference.Name)
	if err != nil {
		return nil, fmt.Errorf("reading the endpoint slice: %w", err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var slice struct {
		Status struct {
			Endpoints []endpoints.Endpoint `json:"endpoints"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &slice); err != nil {
		return nil, fmt.Errorf("decoding the endpoint slice: %w", err)
	}
	return slice.Status.Endpoints, nil
}

func (h *handler) readSlice(ctx context.Context, resource *storage.Resource, name string) (runtime.Object, error) {
	gr := resource.GVR.GroupResource()
	if compiled, err := h.Registry.Get(gr); err == nil && compiled == resource {
		return storage.NewReader[runtime.Object](h.Registry, gr).Global().GetLatest(ctx, "", name)
	}
	ctx = request.WithRequestInfo(request.WithNamespace(ctx, ""), &request.RequestInfo{APIGroup: gr.Group, Resource: gr.Resource})
	return resource.Store.Get(ctx, name, &metav1.GetOptions{})
}

// writeError responds with 500, or with 503 while the objects of other shards are not synced. Details concern the provider and
// are only logged.
func (h *handler) writeError(w http.ResponseWriter, req *http.Request, err error) {
	if req.Context().Err() == nil {
		klog.FromContext(req.Context()).V(2).Info("A resource with virtual storage cannot be served", "path", req.URL.Path, "reason", err)
	}
	if storage.IsNotSynced(err) {
		err = apierrors.NewServiceUnavailable("the location of the objects of this resource is not synced yet")
	} else {
		err = apierrors.NewInternalError(errors.New("the objects of this resource cannot be read; its provider has to fix the virtual storage of the export"))
	}
	responsewriters.ErrorNegotiated(err, h.Serializer, schema.GroupVersion{}, w, req)
}
