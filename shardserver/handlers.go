package shardserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/routes"
	"k8s.io/kubernetes/pkg/serviceaccount"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/embedded"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/internal/nesting"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
	"github.com/atoll-dev/atoll/shardserver/authentication"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
	"github.com/atoll-dev/atoll/shardserver/fence"
	"github.com/atoll-dev/atoll/shardserver/filters"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
	"github.com/atoll-dev/atoll/shardserver/openapi"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/tenancy/home"
	"github.com/atoll-dev/atoll/shardserver/tenancy/mount"
	"github.com/atoll-dev/atoll/shardserver/tenancy/watchterminator"
	"github.com/atoll-dev/atoll/shardserver/virtual"
	"github.com/atoll-dev/atoll/shardserver/virtual/admin"
	virtualapiexport "github.com/atoll-dev/atoll/shardserver/virtual/apiexport"
	"github.com/atoll-dev/atoll/shardserver/virtual/apiresourceschema"
	"github.com/atoll-dev/atoll/shardserver/virtual/cache"
	"github.com/atoll-dev/atoll/shardserver/virtual/lifecycle"
	"github.com/atoll-dev/atoll/shardserver/virtual/syncer"
)

func (d *dependencies) applyHandlerChain(context.Context) error {
	d.registry.SetVisibilityFunc(d.isVisible)
	d.watchTerminator = watchterminator.New(d.generic.LongRunningFunc, visibleInVirtualWorkspace)
	if d.fence != nil {
		d.watchTerminator.SetClosed(func(cluster *corev1alpha1.LogicalCluster) bool { return movestate.Of(cluster.Annotations).IsHidden() })
	}
	d.generic.BuildHandlerChainFunc = d.handlerChain
	return nil
}

// handlerChain returns the path of a request through the shard: the filters, listed in the order in which a request passes them, and then
// the documents and the handlers of APIs. The stock chain is between our outermost filters, which resolve the logical cluster, and our
// innermost, which restrict the request to it. Nothing is served outside of this chain (wall W7).
func (d *dependencies) handlerChain(apiHandler http.Handler, generic *genericapiserver.Config) http.Handler {
	serializer := generic.Serializer
	chain := []func(http.Handler) http.Handler{
		d.options.WriteTimeouts.WithTimeouts,
		authentication.WithInClusterRewrite,
		func(next http.Handler) http.Handler {
			resolver := filters.NewResolver(d.registry, d.options.Shard.Name, d.options.FeatureEnabled(options.GateWorkspaceMounts))
			limiter := filters.NewReadLimiter(authenticatedOrigin(generic.Authentication))
			return filters.WithCluster(next, audit.NewRejectHandler(generic), resolver, limiter, serializer)
		},
		d.virtual.WithRequest,
		func(next http.Handler) http.Handler {
			if generic.AuditBackend == nil {
				return next
			}
			return audit.WithCluster(audit.WithSource(next, sourceOf))
		},
		func(next http.Handler) http.Handler {
			return authorization.WithInactiveCheck(next, d.registry, serializer, d.answerMoving(generic))
		},
		d.withAnswers(generic),
		requester.With,
		func(next http.Handler) http.Handler { return genericapiserver.DefaultBuildHandlerChain(next, generic) },
		func(next http.Handler) http.Handler { return d.watchTerminator.WithTermination(next, d.registry) },
		mount.WithProxy,
		func(next http.Handler) http.Handler { return d.usage.WithCounting(next, isUnattributed) },
		func(next http.Handler) http.Handler { return d.usage.WithUsage(next, serializer) },
		func(next http.Handler) http.Handler {
			if d.workspaceLog == nil {
				return next
			}
			return d.workspaceLog.WithLog(next, isView, serializer)
		},
		func(next http.Handler) http.Handler {
			return filters.WithSelectorLimit(next, filters.MaxSelectorBytes, serializer)
		},
		func(next http.Handler) http.Handler { return nesting.WithBodyLimits(next, d.bodyLimits(generic)) },
		func(next http.Handler) http.Handler { return d.virtual.WithServing(next, serializer) },
		func(next http.Handler) http.Handler { return d.withHome(next, serializer) },
		authorization.WithImpersonationScope,
		authorization.WithDeepSARHeader,
		func(next http.Handler) http.Handler { return filters.WithResourceRules(next, d.registry, serializer) },
	}
	handler := d.withDocuments(d.customResources.Wrap(apiHandler), generic)
	for _, filter := range slices.Backward(chain) {
		handler = filter(handler)
	}
	return handler
}

// isUnattributed reports whether a request does not count as usage of its logical cluster: the shard's own controllers send it, or
// it came through a virtual workspace, whose clients are not those of the logical cluster.
func isUnattributed(req *http.Request) bool {
	return isView(req) || registry.IsLoopbackRequest(req.Context())
}

// isView reports whether a request came through a virtual workspace.
func isView(req *http.Request) bool {
	_, ok := virtual.From(req.Context())
	return ok
}

// sourceOf returns how a request came to its logical cluster.
func sourceOf(req *http.Request) audit.Source {
	switch {
	case mount.HasTarget(req.Context()):
		return audit.SourceMount
	case isView(req):
		return audit.SourceView
	}
	return audit.SourceWorkspace
}

// answerMoving returns what answers requests to logical clusters that move, or nil where none do.
func (d *dependencies) answerMoving(generic *genericapiserver.Config) func(http.ResponseWriter, *http.Request, map[string]string) bool {
	if d.fence == nil {
		return nil
	}
	return d.fenceFilter(generic).Answer
}

// withAnswers returns the filter that refuses requests to views of all logical clusters while a restored shard does not know which of them other
// shards have.
func (d *dependencies) withAnswers(generic *genericapiserver.Config) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if d.fence == nil {
			return next
		}
		return d.fenceFilter(generic).WithAnswers(next, func(req *http.Request) bool {
			_, ok := virtual.From(req.Context())
			return ok
		})
	}
}

func (d *dependencies) fenceFilter(generic *genericapiserver.Config) *fence.Filter {
	return &fence.Filter{
		RequestInfo: generic.RequestInfoResolver, IsLongRunning: generic.LongRunningFunc, Serializer: generic.Serializer,
		AwaitEpoch: d.fence.AwaitEpoch, Answers: d.fence.Answers,
		IsExempt: func(req *http.Request) bool {
			view, ok := virtual.From(req.Context())
			return ok && view.ServesMoving()
		},
	}
}

// authenticatedOrigin returns a function that authenticates requests before their logical cluster is known, and returns
// the origin of the user. It is empty for users that the logical cluster itself authenticates, and without valid
// credentials.
func authenticatedOrigin(info genericapiserver.AuthenticationInfo) func(*http.Request) string {
	return func(req *http.Request) string {
		ctx := req.Context()
		if len(info.APIAudiences) > 0 {
			ctx = authenticator.WithAudiences(ctx, info.APIAudiences)
		}
		response, ok, err := info.Authenticator.AuthenticateRequest(req.WithContext(ctx))
		if !ok || err != nil {
			return ""
		}
		return authorization.Origin(ctx, response.User)
	}
}

// withDocuments serves discovery and OpenAPI of the request's logical cluster: the built-in documents, as next serves
// them, merged with definitions and bindings.
func (d *dependencies) withDocuments(handler http.Handler, generic *genericapiserver.Config) http.Handler {
	compiled := discovery.NewSource(handler, d.builtInGroups)
	sets := discovery.NewResolver(compiled, d.registry, d.groups.specs.HashOf, d.boundDefinitions, d.definitions.OverlapsBuiltIn)
	d.discovery = discovery.NewHandler(handler, sets, generic.DiscoveryAddresses, generic.Serializer)
	d.openapi = openapi.NewHandler(d.discovery, sets, compiled, generic.OpenAPIV3Config, func() *spec.Swagger { return d.openAPISpec.StaticOpenAPISpec }, generic.Serializer)
	return d.openapi
}

// boundDefinitions returns the definitions that the context's logical cluster binds.
func (d *dependencies) boundDefinitions(ctx context.Context) ([]discovery.CandidateDefinition, error) {
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.IsWildcard() {
		return nil, nil
	}
	served, err := d.definitions.ListBoundDefinitions(ctx)
	if err != nil {
		return nil, err
	}
	bound := make([]discovery.CandidateDefinition, 0, len(served))
	subresourcesOf := d.boundSubresources(ctx)
	for _, b := range served {
		subresources, err := subresourcesOf(b.BoundResource)
		if err != nil {
			return nil, err
		}
		bound = append(bound, discovery.CandidateDefinition{Object: b.Definition, Terminating: b.Terminating, ReadOnly: b.Virtual, Subresources: subresources})
	}
	return bound, nil
}

// DocumentStats are the statistics of the caches of discovery and OpenAPI documents.
type DocumentStats struct{ Discovery, OpenAPIv2, OpenAPIv3 documents.Stats }

// DocumentStats returns the current statistics.
func (s *Server) DocumentStats() DocumentStats {
	v2, v3 := s.openapi.Stats()
	return DocumentStats{Discovery: s.discovery.Stats(), OpenAPIv2: v2, OpenAPIv3: v3}
}

// homeAuthorizer allows users to request their home workspaces, if home workspaces are enabled.
func (d *dependencies) homeAuthorizer(delegate authorizer.UnconditionalAuthorizer) authorizer.UnconditionalAuthorizer {
	if !d.options.Home.Enabled {
		return delegate
	}
	return home.Authorizer(delegate)
}

// withHome serves requests of users for their home workspaces, if home workspaces are enabled.
func (d *dependencies) withHome(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	if !d.options.Home.Enabled {
		return handler
	}
	return home.WithHome(handler, home.Config{
		Registry:   d.registry,
		Client:     d.clients.Typed,
		Authorizer: d.authorizer,
		Types:      d.types,
		ShardName:  d.options.Shard.Name,
		Serializer: serializer,
	})
}

// installTokenIssuer serves the documents by which others verify service account tokens:
// /.well-known/openid-configuration, and the public keys under /openid/v1/jwks. They are the same in every logical
// cluster. An issuer that is not a valid OpenID Connect issuer has none, as in stock.
func (d *dependencies) installTokenIssuer(server *genericapiserver.GenericAPIServer) {
	accounts := d.options.Authentication.ServiceAccounts
	keys := accounts.JWKSURI
	if keys == "" {
		keys = strings.TrimSuffix(d.options.Shard.ExternalURL, "/") + serviceaccount.JWKSPath
	}
	metadata, err := serviceaccount.NewOpenIDMetadataProvider(accounts.Issuers[0], keys, "", d.publicKeys)
	if err != nil {
		klog.ErrorS(err, "Failed to discover the issuer of service account tokens", "issuer", accounts.Issuers[0])
		return
	}
	routes.NewOpenIDMetadataServer(metadata).Install(server.Handler.GoRestfulContainer)
}

// createVirtualWorkspaces creates the virtual workspaces over the storages of the shard.
func (d *dependencies) createVirtualWorkspaces(ctx context.Context) error {
	if !d.servesVirtualWorkspaces() {
		return nil
	}
	all, err := d.logicalClusterWorkspaces()
	if err != nil {
		return err
	}
	exportsConfig := virtualapiexport.Config{
		Registry:   d.registry,
		Exports:    d.exports,
		Bindings:   d.bindings,
		Authorizer: d.authorizer,
		Policy:     d.authorizer.AuthorizeClaimed,
		Documents:  func() (*discovery.Handler, *openapi.Handler) { return d.discovery, d.openapi },
		Serializer: d.generic.Serializer,

		CustomSubresources: d.servesSubresources(),
	}
	if d.virtualStorage != nil {
		exportsConfig.VirtualStorage = d.virtualStorage
	}
	exports, watches := virtualapiexport.New(exportsConfig)
	agents, agentWatches := syncer.New(exportsConfig)
	d.exportWatches = []*virtualapiexport.WatchTerminator{watches, agentWatches}
	schemas, err := apiresourceschema.New(apiresourceschema.Config{
		Base:       d.generic,
		Registry:   d.registry,
		Exports:    d.exports,
		Schemas:    d.storesOf(apisv1alpha1.SchemeGroupVersion)["apiresourceschemas"],
		Authorizer: d.authorizer,
		Serializer: d.generic.Serializer,
	})
	if err != nil {
		return err
	}
	all = append(all, exports, agents, schemas)
	shards, err := d.adminWorkspace(ctx)
	if err != nil {
		return fmt.Errorf("creating the admin workspace: %w", err)
	}
	all = append(all, shards)
	if d.replicationView != nil {
		all = append(all, d.replicationView.VirtualWorkspace())
	}
	if err := d.virtual.Register(all...); err != nil {
		return fmt.Errorf("adding virtual workspaces: %w", err)
	}
	d.generic.AddReadyzChecks(d.virtual.Checks()...)
	return nil
}

// adminWorkspace returns the virtual workspace with the shards of the installation.
func (d *dependencies) adminWorkspace(ctx context.Context) (*virtual.Workspace, error) {
	if d.options.IsRoot() {
		return admin.New(admin.Config{Base: d.generic, Shards: d.storesOf(corev1alpha1.SchemeGroupVersion)["shards"],
			Policies: d.groups.admin.VersionedResourcesStorageMap[adminv1alpha1.SchemeGroupVersion.Version][adminResource.Resource]})
	}
	root, err := d.options.RootConfig()
	if err != nil {
		return nil, err
	}
	return admin.NewForwarding(admin.ForwardConfig{Root: root, Serializer: d.generic.Serializer, Stopping: ctx})
}

// servesVirtualWorkspaces is false where a server of its own, to which --shard-virtual-workspace-url points, forwards
// requests to other shards.
func (d *dependencies) servesVirtualWorkspaces() bool {
	return d.options.RunVirtualWorkspaces || d.options.Shard.VirtualWorkspaceURL != d.options.Shard.BaseURL
}

// logicalClusterWorkspaces returns the virtual workspaces of initializers and terminators.
func (d *dependencies) logicalClusterWorkspaces() ([]*virtual.Workspace, error) {
	stores := d.storesOf(corev1alpha1.SchemeGroupVersion)
	return lifecycle.New(lifecycle.Config{
		Base:            d.generic,
		Registry:        d.registry,
		Authorizer:      d.authorizer,
		LogicalClusters: stores["logicalclusters"],
		Status:          stores["logicalclusters/status"],
		Serializer:      d.generic.Serializer,
	})
}

// storesOf returns the built-in storages of a version of a group by resource.
func (d *dependencies) storesOf(version schema.GroupVersion) map[string]rest.Storage {
	for _, info := range d.groups.named {
		if info.PrioritizedVersions[0].Group == version.Group {
			return info.VersionedResourcesStorageMap[version.Version]
		}
	}
	return nil
}

// createCache serves a cache server at /services/cache, unless the shard has another one.
func (d *dependencies) createCache(ctx context.Context, create embedded.NewServerFunc) error {
	if create == nil || !d.embedsCache() {
		return nil
	}
	config := embedded.Config{
		Transport:   d.options.Etcd.StorageConfig.Transport,
		Prefix:      reservedkeys.EmbeddedCache(d.options.Etcd.StorageConfig.Prefix),
		MinWatch:    time.Duration(d.generic.MinRequestTimeout) * time.Second,
		MaxBody:     d.generic.MaxRequestBodyBytes,
		AlwaysAllow: d.options.Authorization.AlwaysAllowPaths,
		MaxObjects:  d.options.Shard.MaxObjectsPerRemoteShard,
	}
	if d.generic.ResourceTransformers != nil {
		config.Transformer = d.generic.ResourceTransformers.TransformerForResource
	}
	server, err := create(ctx, config)
	if err != nil {
		return fmt.Errorf("creating the embedded cache server: %w", err)
	}
	d.cache = server
	return d.virtual.Register(cache.NewWorkspace(d.cache))
}

// embedsCache reports whether the shard runs the cache server of its installation.
func (d *dependencies) embedsCache() bool { return d.options.Shard.CacheKubeconfig == "" }

// visibleInVirtualWorkspace is the watchterminator.VisibilityFunc of the shard's virtual workspaces.
func visibleInVirtualWorkspace(ctx context.Context) func(*corev1alpha1.LogicalCluster) bool {
	request, ok := virtual.From(ctx)
	if !ok {
		return nil
	}
	return request.IsOpen
}
