package shardserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// hookBindings is the name of the post-start hook that is done when all bindings, exports and workspace types are known.
const hookBindings = "kcp-follow-bindings"

// followBindings ties what is known of bindings, exports and workspace types to the life of the server.
func (s *Server) followBindings() {
	index, exports, types := s.config.bindings, s.config.exports, s.config.typeIndex
	s.Generic.AddPostStartHookOrDie(hookBindings, func(hook genericapiserver.PostStartHookContext) error {
		s.running.Go(func() { index.Run(hook) })
		s.running.Go(func() { exports.Run(hook) })
		s.running.Go(func() { types.Run(hook) })
		for _, wait := range []func(context.Context) error{index.WaitForSync, exports.WaitForSync, types.WaitForSync} {
			if err := wait(hook); err != nil && hook.Err() == nil {
				return err
			}
		}
		return nil
	})
}

// Bindings returns the index of what logical clusters have bound.
func (s *Server) Bindings() *bindings.Index { return s.config.bindings }

// Exports returns what finds exports and their schemas.
func (s *Server) Exports() *apiindex.Catalog { return s.config.exports }

// visible is the rule that says which logical clusters show a resource that is compiled in: what is stored with an
// identity is shown where it is bound with that identity, everything else everywhere. In root and system:shard all is
// shown, for a fresh shard writes there before anything can be bound; requests over all logical clusters, and outside of
// any, see all, too. So does a logical cluster that is being deleted: what is left of it must be found, whoever took its
// bindings away.
func (c *Config) visible(ctx context.Context, gr schema.GroupResource) bool {
	resource, err := c.registry.Get(gr)
	if err != nil {
		return true // not stored
	}
	identity := resource.Segment()
	if identity == "" || identity == customResourceSegment {
		return true
	}
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() || cluster == logicalcluster.Root || cluster == logicalcluster.Shard {
		return true
	}
	if bound, ok := c.bindings.Get(ctx, gr); ok && bound.Identity == identity {
		return true
	}
	own, err := c.logicalClusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	return err == nil && own.DeletionTimestamp != nil
}

// exported returns a resource as some export of this shard with an identity has it now, or nil.
func (c *Config) exported(ctx context.Context, gr schema.GroupResource, identity string) (*bindings.Resource, error) {
	exports, err := c.exports.ByIdentity(ctx, identity)
	if err != nil {
		return nil, err
	}
	for _, export := range exports {
		for _, resource := range export.Spec.Resources {
			if resource.Group != gr.Group || resource.Name != gr.Resource {
				continue
			}
			described, err := c.exports.Schema(ctx, logicalcluster.Of(export), resource.Schema)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("reading APIResourceSchema %q of %q: %w", resource.Schema, logicalcluster.Of(export), err)
			}
			return &bindings.Resource{
				GroupResource: gr, Export: apiindex.ExportOf(export), Identity: identity,
				Schema: resource.Schema, SchemaUID: described.UID, Virtual: resource.Storage.Virtual != nil,
			}, nil
		}
	}
	return nil, nil
}
