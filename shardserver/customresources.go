package shardserver

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/customresources/lifecycle"
)

// hookDefinitions is the name of the post-start hook that is done when all definitions are known.
const hookDefinitions = "kcp-follow-definitions"

// serveCustomResources creates what serves the resources that definitions bring, and makes the definitions of all
// logical clusters known to the registry.
func (c *Config) serveCustomResources(groups *apiGroups) {
	pool := crdstorage.NewPool(crdstorage.Options{
		Storage:                 c.options.Etcd.StorageConfig,
		Transformers:            c.rest.transformers,
		WatchCache:              c.options.Etcd.EnableWatchCache,
		GarbageCollection:       c.options.Etcd.EnableGarbageCollection,
		DeleteCollectionWorkers: c.options.Etcd.DeleteCollectionWorkers,
	})
	c.definitions = customresources.NewCatalog(customresources.Config{
		Registry:   c.registry,
		Shared:     groups.shared,
		Pool:       pool,
		CompiledIn: groups.resources(),
		Reserved:   sets.New(systemResources...),
		Bindings:   c.bindings,
		Exported:   c.exported,
	})
	c.custom = customresources.NewHandler(c.definitions, customresources.Serving{
		Admission:           c.Generic.AdmissionControl,
		Authorizer:          c.Generic.Authorization.Authorizer,
		RequestTimeout:      c.Generic.RequestTimeout,
		MinRequestTimeout:   time.Duration(c.Generic.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes: c.Generic.MaxRequestBodyBytes,
		OpenAPI:             func() map[string]*spec.Schema { return groups.definitions.StaticOpenAPISpec },
	}, c.Generic.Serializer)
	c.registry.SetLocal(c.definitions)
}

// followDefinitions ties the catalog of definitions to the life of the server.
func (s *Server) followDefinitions() {
	catalog := s.config.definitions
	s.Generic.AddPostStartHookOrDie(hookDefinitions, func(hook genericapiserver.PostStartHookContext) error {
		s.running.Go(func() { catalog.Run(hook) })
		if err := catalog.WaitForSync(hook); err != nil && hook.Err() == nil {
			return err
		}
		return nil
	})
	s.Generic.RegisterDestroyFunc(catalog.Close)
}

// Definitions returns the catalog of the definitions of all logical clusters.
func (s *Server) Definitions() *customresources.Catalog { return s.config.definitions }

// resources returns all resources that are compiled in, stored or not.
func (g *apiGroups) resources() sets.Set[schema.GroupResource] {
	resources := sets.New[schema.GroupResource]()
	for _, info := range g.all() {
		for _, storages := range info.VersionedResourcesStorageMap {
			for name := range storages {
				resource, _, _ := strings.Cut(name, "/")
				resources.Insert(schema.GroupResource{Group: info.PrioritizedVersions[0].Group, Resource: resource})
			}
		}
	}
	return resources
}

// definitionControllers returns the controllers of the definitions themselves.
func (s *Server) definitionControllers() []controller.Controller {
	return lifecycle.Controllers(lifecycle.Config{Registry: s.Registry, Clients: s.config.clients, Catalog: s.config.definitions})
}
