package shardserver

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	entries "github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/subresources"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/backends"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/virtual/virtualstorage"
)

// servesSubresources is true if custom subresources of exports are served.
func (d *dependencies) servesSubresources() bool {
	return d.options.FeatureEnabled(options.GateCacheAPIs)
}

// createSubresources creates what serves custom subresources of exports.
func (d *dependencies) createSubresources(context.Context) error {
	if !d.servesSubresources() {
		return nil
	}
	if files := d.options.Shard.Backends; files != (backends.Files{}) {
		var err error
		if d.backends, err = backends.New(files); err != nil {
			return fmt.Errorf("--subresource-backend-ca-file, --subresource-backend-client-cert-file: %w", err)
		}
	}
	d.customResources.SetSubresources(virtualstorage.NewSubresources(virtualstorage.SubresourceConfig{
		Registry: d.registry, Exports: d.exports, Schemas: d.exports, Bindings: d.bindings, Backends: d.backends,
		ShardName: d.options.Shard.Name, Serializer: d.generic.Serializer,
	}))
	return nil
}

// subresourceControllers returns the controllers of custom subresources.
func (d *dependencies) subresourceControllers() []controller.Controller {
	if !d.servesSubresources() {
		return nil
	}
	cfg := subresources.Config{Registry: d.registry, Clients: d.clients, Schemas: d.exports, ShardName: d.options.Shard.Name}
	if d.backends != nil {
		cfg.Discovery = d.backends
	}
	return subresources.Controllers(cfg)
}

// isSubresourceUpgrade reports whether a request asks for another protocol with a custom subresource of a bound resource. Such a
// connection stays open. The bindings are asked, because other requests must not avoid timeouts and flow control by the header.
func (d *dependencies) isSubresourceUpgrade(req *http.Request, info *request.RequestInfo) bool {
	if req.Header.Get("Upgrade") == "" || !entries.IsCustom(info.Subresource) || !d.servesSubresources() {
		return false
	}
	if cluster, ok := logicalcluster.From(req.Context()); !ok || cluster.IsWildcard() {
		return false
	}
	bound, ok := d.bindings.Get(req.Context(), schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
	if !ok {
		return false
	}
	export, err := d.exports.Get(req.Context(), bound.Export)
	return err == nil && entries.Find(export, bound.GroupResource, info.Subresource) != nil
}

// boundSubresources returns a function that returns the custom subresources of a bound resource, for discovery: those whose verbs are
// known from their backends.
func (d *dependencies) boundSubresources(ctx context.Context) func(bindings.BoundResource) ([]discovery.Subresource, error) {
	type offer struct {
		export *apisv1alpha2.APIExport
		record subresources.Record
	}
	offers := map[bindings.ExportKey]offer{} // a binding often has several resources
	return func(bound bindings.BoundResource) ([]discovery.Subresource, error) {
		if !d.servesSubresources() {
			return nil, nil
		}
		from, known := offers[bound.Export]
		if !known {
			export, err := d.exports.Get(ctx, bound.Export)
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return nil, fmt.Errorf("reading APIExport %q of %q: %w", bound.Export.Name, bound.Export.Cluster, err)
			case export.Status.IdentityHash == bound.Identity:
				from = offer{export, subresources.ParseRecord(export)}
			}
			offers[bound.Export] = from
		}
		if from.export == nil {
			return nil, nil
		}
		return discovery.SubresourcesOf(ctx, d.exports, from.export, bound.GroupResource, func(entry *apisv1alpha2.ResourceSchema, version string) []string {
			return from.record.Get(entry).VerbsIn(version)
		})
	}
}
