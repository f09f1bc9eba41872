package shardserver

import (
	"fmt"

	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/openapi"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/virtual"
	virtualapiexport "github.com/atoll-dev/atoll/shardserver/virtual/apiexport"
	"github.com/atoll-dev/atoll/shardserver/virtual/apiresourceschema"
	"github.com/atoll-dev/atoll/shardserver/virtual/lifecycle"
	"github.com/atoll-dev/atoll/shardserver/virtual/replication"
	"github.com/atoll-dev/atoll/shardserver/virtual/virtualstorage"
)

// hookViews is the name of the post-start hook that begins to end watches in virtual workspaces.
const hookViews = "kcp-follow-virtual-workspaces"

// addVirtualWorkspaces makes the virtual workspaces over the storages of the shard. They are ready with it.
func (s *Server) addVirtualWorkspaces(groups *apiGroups) error {
	c := s.config
	// A server of their own, which the URL is of, passes requests on to these.
	if !c.options.RunVirtualWorkspaces && c.options.Shard.VirtualWorkspaceURL == c.options.Shard.BaseURL {
		return nil
	}
	all, err := c.lifecycleViews(groups)
	if err != nil {
		return err
	}
	exports, streams := virtualapiexport.New(virtualapiexport.Config{
		Registry:   c.registry,
		Exports:    c.exports,
		Authorizer: c.authorizer,
		Policy:     c.authorizer.AuthorizeClaimed,
		Documents:  func() (*discovery.Handler, *openapi.Handler) { return c.discovery, c.openapi },
		Serializer: c.Generic.Serializer,
	})
	s.streams = streams
	schemas, err := apiresourceschema.New(apiresourceschema.Config{
		Base:       c.Generic,
		Registry:   c.registry,
		Exports:    c.exports,
		Authorizer: c.authorizer,
		Serializer: c.Generic.Serializer,
	})
	if err != nil {
		return err
	}
	all = append(all, exports, schemas)
	if c.options.FeatureEnabled(options.GateCacheAPIs) {
		all = append(all, s.cachedResources())
	}
	if err := c.virtual.Add(all...); err != nil {
		return fmt.Errorf("adding virtual workspaces: %w", err)
	}
	for _, check := range c.virtual.Checks() {
		c.Generic.AddReadyzChecks(check)
	}
	return nil
}

// cachedResources makes the virtual workspace of cached resources, and has bound resources that are not stored where they
// are bound served by it.
func (s *Server) cachedResources() *virtual.Workspace {
	c := s.config
	view := replication.New(replication.Config{
		Registry: c.registry, Exports: c.exports, References: references{c.exports, s}, Copies: s.copies, Bindings: c.bindings, Authorizer: c.authorizer,
		Documents:  func() (*discovery.Handler, *openapi.Handler) { return c.discovery, c.openapi },
		Serializer: c.Generic.Serializer,
	})
	c.custom.SetVirtual(virtualstorage.New(virtualstorage.Config{
		Registry: c.registry, Exports: c.exports, Replication: view.ServeConsumer,
		ShardName: c.options.Shard.Name, Serializer: c.Generic.Serializer,
	}))
	return view.Virtual()
}

// lifecycleViews makes the virtual workspaces of initializers and terminators.
func (c *Config) lifecycleViews(groups *apiGroups) ([]*virtual.Workspace, error) {
	stores := map[string]rest.Storage{}
	for _, info := range groups.named {
		if version := info.PrioritizedVersions[0]; version == corev1alpha1.SchemeGroupVersion {
			for name, store := range info.VersionedResourcesStorageMap[version.Version] {
				stores[name] = store
			}
		}
	}
	return lifecycle.New(lifecycle.Config{
		Base:            c.Generic,
		Registry:        c.registry,
		Authorizer:      c.authorizer,
		LogicalClusters: stores["logicalclusters"],
		Status:          stores["logicalclusters/status"],
		Serializer:      c.Generic.Serializer,
	})
}

// followViews keeps watches in virtual workspaces to what their providers may see.
func (s *Server) followViews(hook genericapiserver.PostStartHookContext) error {
	if s.streams != nil {
		s.running.Go(func() { s.streams.Run(hook) })
	}
	return nil
}
