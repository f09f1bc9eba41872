package virtualstorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	entries "github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/subresources"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/backends"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// recheckInterval is how often it is checked that an open connection is still allowed by the binding.
const recheckInterval = 2 * time.Second

// SubresourceConfig holds the dependencies of Subresources.
type SubresourceConfig struct {
	Registry *storage.Registry
	Exports  Exports
	Schemas  apiindex.SchemaGetter
	Bindings *bindings.Index
	// Backends is nil if this shard has no connection to backends.
	Backends *backends.Client
	// ShardName is the name of this shard's Shard object in root.
	ShardName  string
	Serializer runtime.NegotiatedSerializer
}

// Subresources forwards requests for custom subresources to the backends of their exports. It does not read the object whose
// subresource it is: the backend decides what it serves for which names.
type Subresources struct {
	SubresourceConfig
	shards endpoints.ShardLister
}

// NewSubresources returns the handler of custom subresources.
func NewSubresources(cfg SubresourceConfig) *Subresources {
	return &Subresources{cfg, endpoints.NewShardLister(cfg.Registry)}
}

// subresourceRequest is a request for a custom subresource.
type subresourceRequest struct {
	info    *request.RequestInfo
	cluster logicalcluster.Name
	caller  user.Info
	export  *apisv1alpha2.APIExport
	entry   *apisv1alpha2.ResourceSchema
	hops    int
}

// Serve serves an authorized request for a subresource of a bound resource. It returns false if the export does not define the
// subresource.
func (s *Subresources) Serve(w http.ResponseWriter, req *http.Request, bound bindings.BoundResource) bool {
	r, err := s.parse(req, bound)
	if err == nil && r == nil {
		return false
	}
	var target *url.URL
	if err == nil {
		target, err = s.target(req.Context(), r)
	}
	if err != nil {
		s.writeError(w, req, bound.GroupResource, err)
		return true
	}
	if req.Header.Get("Upgrade") != "" {
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		go s.closeUnbound(ctx, cancel, r, bound)
		req = req.WithContext(ctx)
	}
	s.Backends.Forward(w, req, target, r.caller, r.hops+1, func(err error) {
		if req.Context().Err() == nil {
			klog.FromContext(req.Context()).V(4).Info("The backend of a custom subresource does not answer", "host", target.Host, "err", err)
		}
		s.writeError(w, req, bound.GroupResource, apierrors.NewGenericServerResponse(http.StatusBadGateway, r.info.Verb, bound.GroupResource, r.info.Name, "the server of the subresource does not answer", 0, true))
	})
	return true
}

// closeUnbound ends a connection with another protocol when the resource is no longer bound, or the export no longer defines the
// subresource. It returns when the connection has ended.
func (s *Subresources) closeUnbound(ctx context.Context, end context.CancelFunc, r *subresourceRequest, bound bindings.BoundResource) {
	ticker := time.NewTicker(recheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		current, ok := s.Bindings.Get(ctx, bound.GroupResource)
		if !ok || current.Export != bound.Export || current.Identity != bound.Identity {
			end()
			return
		}
		export, err := s.Exports.Get(ctx, bound.Export)
		if apierrors.IsNotFound(err) || err == nil && entries.Find(export, bound.GroupResource, r.info.Subresource) == nil {
			end()
			return
		}
	}
}

// parse returns the request; nil if the export does not define its subresource for it.
func (s *Subresources) parse(req *http.Request, bound bindings.BoundResource) (*subresourceRequest, error) {
	ctx := req.Context()
	r := &subresourceRequest{}
	var hasInfo, hasCluster, hasUser bool
	r.info, hasInfo = request.RequestInfoFrom(ctx)
	r.cluster, hasCluster = logicalcluster.From(ctx)
	r.caller, hasUser = request.UserFrom(ctx)
	if !hasInfo || !hasCluster || !hasUser {
		return nil, errors.New("no request info, logical cluster or user in the request")
	}
	if len(r.info.Parts) != 3 || r.info.Name == "" { // resource, name and subresource, without a path below
		return nil, nil
	}
	var err error
	if r.export, err = s.Exports.Get(ctx, bound.Export); err != nil {
		return nil, ignoreNotFound(err)
	}
	if r.export.Status.IdentityHash != bound.Identity {
		return nil, nil // it is another export in the place of the one that was bound
	}
	if r.entry = entries.Find(r.export, bound.GroupResource, r.info.Subresource); r.entry == nil {
		return nil, nil
	}
	if ok, err := s.isServed(ctx, r, bound); err != nil || !ok {
		return nil, err
	}
	if !slices.Contains(entries.Verbs, r.info.Verb) {
		return nil, apierrors.NewMethodNotSupported(bound.GroupResource, req.Method)
	}
	if hasTooManyHops(req) {
		return nil, fmt.Errorf("%s: header %s is %q", bound.GroupResource, hopsHeader, req.Header.Get(hopsHeader))
	}
	r.hops, _ = strconv.Atoi(req.Header.Get(hopsHeader)) // 0 without the header
	return r, nil
}

// isServed reports whether the schema of the subresource has the version of the request, and the bound resource its scope.
func (s *Subresources) isServed(ctx context.Context, r *subresourceRequest, bound bindings.BoundResource) (bool, error) {
	described, err := s.Schemas.GetSchema(ctx, bound.Export.Cluster, r.entry.Schema)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	parent, err := s.Schemas.GetSchema(ctx, bound.Export.Cluster, bound.Schema)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	isNamespaced := parent.Spec.Scope == apiextensionsv1.NamespaceScoped
	return isNamespaced == (r.info.Namespace != "") && slices.ContainsFunc(described.Spec.Versions, func(version apisv1alpha1.APIResourceVersion) bool {
		return version.Served && version.Name == r.info.APIVersion
	}), nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// target returns the URL at the backend. Errors name the object that the provider has to correct.
func (s *Subresources) target(ctx context.Context, r *subresourceRequest) (*url.URL, error) {
	if s.Backends == nil {
		return nil, apierrors.NewServiceUnavailable("this shard is not configured to connect to the servers of custom subresources")
	}
	shard, err := s.shards.Get(ctx, s.ShardName)
	if err != nil {
		return nil, fmt.Errorf("reading the Shard: %w", err)
	}
	reference := r.entry.Storage.Virtual.Reference
	address, err := endpoints.Choose(subresources.ParseRecord(r.export).Get(r.entry).Endpoints, shard.Labels, shard.Spec.VirtualWorkspaceURL)
	if err == nil {
		var target *url.URL
		if target, err = backends.Target(address, r.cluster.String(), schema.GroupVersion{Group: r.info.APIGroup, Version: r.info.APIVersion}, r.path()); err == nil {
			return target, nil
		}
	}
	return nil, apierrors.NewInternalError(fmt.Errorf("%s %q, which has the address of subresource %s, cannot be used: %w; the provider of the export has to correct it",
		endpoints.KindOf(reference), reference.Name, r.entry.Name, err))
}

// path returns the path below the version, escaped.
func (r *subresourceRequest) path() string {
	resource, subresource := entries.Split(*r.entry)
	path := ""
	if r.info.Namespace != "" {
		path = "namespaces/" + url.PathEscape(r.info.Namespace) + "/"
	}
	return path + resource.Resource + "/" + url.PathEscape(r.info.Name) + "/" + subresource
}

// writeError responds with a Kubernetes status. Other errors are only logged.
func (s *Subresources) writeError(w http.ResponseWriter, req *http.Request, gr schema.GroupResource, err error) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		if req.Context().Err() == nil {
			klog.FromContext(req.Context()).V(2).Info("A custom subresource cannot be served", "path", req.URL.Path, "err", err)
		}
		if storage.IsNotSynced(err) {
			err = apierrors.NewServiceUnavailable("the location of the subresource is not synced yet")
		} else {
			err = apierrors.NewInternalError(fmt.Errorf("the subresource of %s cannot be served", gr))
		}
	}
	responsewriters.ErrorNegotiated(err, s.Serializer, schema.GroupVersion{}, w, req)
}
