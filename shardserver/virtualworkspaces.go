package shardserver

import (
	"fmt"

	"k8s.io/apiserver/pkg/registry/rest"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/virtual/lifecycle"
)

// addVirtualWorkspaces makes the virtual workspaces over the storages of the shard. They are ready with it.
func (s *Server) addVirtualWorkspaces(groups *apiGroups) error {
	c := s.config
	if !c.options.RunVirtualWorkspaces {
		return nil
	}
	stores := map[string]rest.Storage{}
	for _, info := range groups.named {
		if version := info.PrioritizedVersions[0]; version == corev1alpha1.SchemeGroupVersion {
			for name, store := range info.VersionedResourcesStorageMap[version.Version] {
				stores[name] = store
			}
		}
	}
	lifecycles, err := lifecycle.New(lifecycle.Config{
		Base:            c.Generic,
		Registry:        c.registry,
		Authorizer:      c.authorizer,
		LogicalClusters: stores["logicalclusters"],
		Status:          stores["logicalclusters/status"],
		Serializer:      c.Generic.Serializer,
	})
	if err != nil {
		return err
	}
	if err := c.virtual.Add(lifecycles...); err != nil {
		return fmt.Errorf("adding virtual workspaces: %w", err)
	}
	for _, check := range c.virtual.Checks() {
		c.Generic.AddReadyzChecks(check)
	}
	return nil
}
