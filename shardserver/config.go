package shardserver

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	stockdiscovery "k8s.io/apiserver/pkg/endpoints/discovery"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"
	"k8s.io/kubernetes/pkg/serviceaccount"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/embedded"
	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/internal/kubeversion"
	"github.com/atoll-dev/atoll/internal/nesting"
	"github.com/atoll-dev/atoll/internal/restoremark"
	"github.com/atoll-dev/atoll/internal/servingcert"
	"github.com/atoll-dev/atoll/shardserver/admission"
	dynamicadmission "github.com/atoll-dev/atoll/shardserver/admission/dynamic"
	"github.com/atoll-dev/atoll/shardserver/admission/limits"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/apis/builtin"
	kcpopenapi "github.com/atoll-dev/atoll/shardserver/apis/openapi"
	"github.com/atoll-dev/atoll/shardserver/authentication"
	"github.com/atoll-dev/atoll/shardserver/authentication/adminauth"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
	"github.com/atoll-dev/atoll/shardserver/backends"
	cachedreplica "github.com/atoll-dev/atoll/shardserver/cachedresources/replica"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdhandler"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/fence"
	"github.com/atoll-dev/atoll/shardserver/filters/audit/workspacelog"
	"github.com/atoll-dev/atoll/shardserver/filters/flowcontrol"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/objectcount"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/metrics"
	"github.com/atoll-dev/atoll/shardserver/openapi"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/sharding/heartbeat"
	"github.com/atoll-dev/atoll/shardserver/sharding/join"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy"
	"github.com/atoll-dev/atoll/shardserver/tenancy/mount"
	"github.com/atoll-dev/atoll/shardserver/tenancy/watchterminator"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacelimits"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
	"github.com/atoll-dev/atoll/shardserver/tokenkeys"
	"github.com/atoll-dev/atoll/shardserver/usage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
	virtualapiexport "github.com/atoll-dev/atoll/shardserver/virtual/apiexport"
	"github.com/atoll-dev/atoll/shardserver/virtual/replication"
	"github.com/atoll-dev/atoll/shardserver/virtual/virtualstorage"
)

// checkSpace is the name of the /readyz check that etcd accepts writes. Reads and deletions work without.
const checkSpace = "etcd-space"

// dependencies are the parts of a shard in topological order: each needs only those above it, unless its comment says
// otherwise. Optional parts are nil where they are not configured.
type dependencies struct {
	options  options.Completed
	registry *storage.Registry
	generic  *genericapiserver.Config

	// Indexes over the watch caches, which are read from storage once they run.
	keys            *etcdkeys.Scanner
	logicalClusters *storage.Reader[*corev1alpha1.LogicalCluster]
	workspaceTypes  *workspacetype.Index
	types           *workspacetype.Resolver
	bindings        *bindings.Index
	exports         *apiindex.Resolver
	consumers       *apiindex.ReferenceIndex[*apisv1alpha2.APIBinding]
	slices          *apiindex.ReferenceIndex[*apisv1alpha1.APIExportEndpointSlice]
	claims          *claims.Index
	objectCounts    *objectcount.Tracker
	space           *etcdkeys.SpaceMonitor
	quotaInFlight   *quota.InFlight
	workspaceLimits *workspacelimits.Tracker
	usage           *usage.Recorder
	workspaceLog    *workspacelog.Log // nil if it has no memory
	fence           *fence.Fence      // nil unless logical clusters can move to other shards

	// Parts of the request path above storage.
	clients     *loopback.Clients
	restOptions *restOptions
	admin       *adminauth.Admin
	publicKeys  serviceaccount.PublicKeysGetter // of service account tokens
	tokenKeys   tokenkeys.Shard                 // the same
	tokenIssuer serviceaccount.TokenGenerator
	authorizer  *authorization.Authorizer
	virtual     *virtual.Registry
	isAudited   bool // by more than workspaceLog
	// checker refuses objects that nest deeper than limits, wherever they are decoded.
	checker          *nesting.Checker
	limits           nesting.Limits
	dynamicAdmission *dynamicadmission.Plugins
	watchTerminator  *watchterminator.Terminator

	// Handlers.
	groups             *apiGroups
	root               *rootShard // nil on the root shard
	definitions        *crdregistry.Registry
	bindingDefinitions *definitions.Manager
	customResources    *crdhandler.Handler
	replicationView    *replication.Workspace
	originals          *cachedreplica.Store // nil if replicationView is
	virtualStorage     *virtualstorage.Handler
	backends           *backends.Client // nil without a connection to servers of custom subresources
	exportWatches      []*virtualapiexport.WatchTerminator
	cache              embedded.Server
	// builtInGroups collects the groups that the API server installs.
	builtInGroups *discovery.Recorder
	// discovery and openapi are set when the API server builds its handler chain.
	discovery *discovery.Handler
	openapi   *openapi.Handler
	// openAPISpec is the API server itself, which computes its static specification when it prepares to run.
	openAPISpec *genericapiserver.GenericAPIServer

	// Parts that connect to other shards.
	registration    *join.Registration
	reporter        *heartbeat.Reporter
	heartbeats      *heartbeat.Tracker
	placer          *tenancy.Placer
	replication     *shardReplication
	cachedResources *cachedResources
	restored        *restoremark.Mark
	migrations      *shardMigrations // nil without the feature gate LogicalClusterMigration

	manager *controller.Manager
}

func newDependencies(opts options.Completed, registry *storage.Registry) *dependencies {
	d := &dependencies{
		options: opts, registry: registry, generic: genericapiserver.NewConfig(legacyscheme.Codecs), virtual: virtual.NewRegistry(),
		limits: nesting.Default(), checker: nesting.NewChecker(legacyscheme.Scheme), placer: &tenancy.Placer{},
	}
	d.generic.Serializer = d.checker.Serializer(d.generic.Serializer, d.limits.Request)
	return d
}

// build fills the dependencies. etcd must be reachable.
func (d *dependencies) build(ctx context.Context, newCache embedded.NewServerFunc) error {
	d.buildIndexes()
	for _, step := range []func(context.Context) error{
		d.applyServing,
		d.claimKeys,
		d.startFence,
		d.applyOpenAPI,
		d.applyStorage,
		d.applyAuthentication,
		d.applyAuthorization,
		d.applyAdmission,
		d.applyAudit,
		d.applyFlowControl,
		d.applyHandlerChain,
		d.createGroups,
		d.createCustomResources,
		d.createSubresources,
		d.createVirtualWorkspaces,
		func(ctx context.Context) error { return d.createCache(ctx, newCache) },
		d.createRegistration,
		d.createHeartbeat,
		d.createMigrations,
		d.createReplication,
		d.createControllers,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *dependencies) applyServing(context.Context) error {
	if err := d.options.ServerRun.ApplyTo(d.generic); err != nil {
		return err
	}
	if err := servingcert.Apply(d.options.SecureServing, d.generic); err != nil {
		return fmt.Errorf("opening the secure port: %w", err)
	}
	if err := d.options.Features.ApplyTo(d.generic, nil, nil); err != nil {
		return err
	}
	d.generic.EffectiveVersion = kubeversion.WithLinkedVersion(d.generic.EffectiveVersion)
	metrics.RestrictLabels(legacyscheme.Scheme)
	d.builtInGroups = discovery.NewRecorder()
	d.generic.AggregatedDiscoveryGroupManager = d.builtInGroups
	// Clients in any network use the address for users: that of this process is the stock default.
	d.generic.DiscoveryAddresses = stockdiscovery.DefaultAddresses{DefaultAddress: d.options.Shard.ExternalAddress()}
	d.generic.EnableMetrics = false // package metrics serves them, with the shard's own
	d.generic.LoopbackClientConfig.DisableCompression = true
	isWatch := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	d.generic.LongRunningFunc = func(req *http.Request, info *request.RequestInfo) bool {
		return isWatch(req, info) || d.isSubresourceUpgrade(req, info)
	}
	var err error
	d.clients, err = loopback.NewClients(d.generic.LoopbackClientConfig)
	return err
}

func (d *dependencies) applyOpenAPI(context.Context) error {
	definitions := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := generatedopenapi.GetOpenAPIDefinitions(ref)
		for name, definition := range kcpopenapi.GetOpenAPIDefinitions(ref) {
			all[name] = definition
		}
		return all
	}
	namer := openapinamer.NewDefinitionNamer(legacyscheme.Scheme)
	d.generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	d.generic.OpenAPIConfig.Info.Title = "Atoll"
	d.generic.OpenAPIConfig.GetDefinitionName = kcpopenapi.WithoutInternal(namer.GetDefinitionName)
	d.generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	d.generic.OpenAPIV3Config.Info.Title = "Atoll"
	d.generic.OpenAPIV3Config.GetDefinitionName = kcpopenapi.WithoutInternal(namer.GetDefinitionName)
	return nil
}

func (d *dependencies) applyStorage(context.Context) error {
	resources := builtin.NewResourceConfig()
	d.generic.MergedResourceConfig = resources
	d.options.Etcd.StorageConfig.StorageObjectCountTracker = d.generic.StorageObjectCountTracker
	rest, err := newRESTOptions(d.options.Etcd, resources, d.checker.StorageSerializer(legacyscheme.Codecs, d.limits.Stored))
	if err != nil {
		return err
	}
	rest.cacheAPIs = d.options.FeatureEnabled(options.GateCacheAPIs)
	rest.migrations = d.options.FeatureEnabled(options.GateLogicalClusterMigration)
	rest.meter = d.objectCounts
	if rest.transactions, err = d.keys.Connect(); err != nil {
		return err
	}
	if d.fence != nil {
		rest.guard = d.fence
		d.registry.SetMoves(storage.Moves{Guard: d.fence, Unrestricted: fence.WithMover})
	}
	d.restOptions = rest
	if err := d.options.Etcd.ApplyWithStorageFactoryTo(rest.factory, d.generic); err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}
	d.generic.AddReadyzChecks(healthz.NamedCheck(checkSpace, func(*http.Request) error { return d.space.Space().Err() }))
	rest.transformers = d.generic.ResourceTransformers
	d.generic.RESTOptionsGetter = rest
	return nil
}

func (d *dependencies) applyAuthentication(ctx context.Context) error {
	stock, err := d.options.Authentication.ToAuthenticationConfig()
	if err != nil {
		return fmt.Errorf("authentication flags: %w", err)
	}
	stock.SecretsWriter = d.clients.Kubernetes.CoreV1()
	stock.APIServerID = d.generic.APIServerID
	info := &d.generic.Authentication
	info.RequestHeaderConfig = stock.RequestHeaderConfig
	info.APIAudiences = stock.APIAudiences
	if err := acceptClientCertificates(stock, info, d.generic.SecureServing); err != nil {
		return err
	}
	tokens := map[string]*user.DefaultInfo{}
	if d.options.Batteries[options.BatteryAdmin] {
		d.admin, err = adminauth.New(adminauth.Config{
			KubeconfigPath: d.options.AdminAuth.KubeconfigPath,
			TokenHashPath:  d.options.AdminAuth.TokenHashPath,
			WithUser:       d.options.Batteries[options.BatteryUser],
		})
		if err != nil {
			return fmt.Errorf("preparing the admin kubeconfig: %w", err)
		}
		tokens = d.admin.Tokens()
	}
	d.publicKeys = stock.ServiceAccountPublicKeysGetter
	if d.tokenKeys, err = d.options.TokenKeys(); err != nil {
		return err
	}
	config := authentication.Config{Stock: stock, OldestKeys: d.tokenKeys.Oldest(), Registry: d.registry, Types: d.workspaceTypes, AdminTokens: tokens}
	if config.Proxy, err = d.options.ProxyConfig(); err != nil {
		return err
	}
	if config.ShardKeys, err = d.options.ServiceAccountKeys(); err != nil {
		return err
	}
	if d.options.FeatureEnabled(options.GateWorkspaceAuthentication) {
		config.Issuers = issuers.New(ctx, authenticator.Audiences(d.options.Authentication.APIAudiences), stock.APIAudiences)
	}
	info.Authenticator, err = authentication.New(ctx, config)
	if err != nil {
		return fmt.Errorf("creating the authenticator: %w", err)
	}
	key, err := keyutil.PrivateKeyFromFile(d.options.ServiceAccountPrivateKeyFile)
	if err != nil {
		return fmt.Errorf("--service-account-private-key-file: %w", err)
	}
	d.tokenIssuer, err = authentication.NewTokenGenerator(d.options.Authentication.ServiceAccounts.Issuers[0], key)
	return err
}

func acceptClientCertificates(stock kubeauthenticator.Config, info *genericapiserver.AuthenticationInfo, serving *genericapiserver.SecureServingInfo) error {
	if stock.ClientCAContentProvider != nil {
		if err := info.ApplyClientCert(stock.ClientCAContentProvider, serving); err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
	}
	if stock.RequestHeaderConfig != nil && stock.RequestHeaderConfig.CAContentProvider != nil {
		if err := info.ApplyClientCert(stock.RequestHeaderConfig.CAContentProvider, serving); err != nil {
			return fmt.Errorf("--requestheader-client-ca-file: %w", err)
		}
	}
	return nil
}

func (d *dependencies) applyAuthorization(context.Context) error {
	opts := d.options.Authorization
	config := authorization.Config{
		Registry: d.registry, Bound: d.bindings, Exports: d.exports, AlwaysAllowPaths: opts.AlwaysAllowPaths, Order: opts.Order,
		Audited: func() bool { return d.isAudited },
	}
	if opts.WebhookConfigFile != "" {
		webhook, err := authorization.NewWebhook(authorization.WebhookConfig{
			Kubeconfig: opts.WebhookConfigFile,
			Version:    opts.WebhookVersion,
			AllowedTTL: opts.WebhookAuthorizedTTL,
			DeniedTTL:  opts.WebhookUnauthorizedTTL,
		})
		if err != nil {
			return fmt.Errorf("--authorization-webhook-config-file: %w", err)
		}
		config.Webhook = webhook
	}
	authorizer, err := authorization.New(config)
	if err != nil {
		return fmt.Errorf("creating the authorizer: %w", err)
	}
	d.authorizer = authorizer
	d.generic.Authorization.Authorizer = requester.Unmark(d.virtual.Authorizer(mount.Authorizer(d.homeAuthorizer(authorizer))))
	d.generic.RuleResolver = authorizer
	return nil
}

func (d *dependencies) applyAdmission(context.Context) error {
	client, err := dynamic.NewForConfigAndClient(dynamic.ConfigFor(loopback.Clusterize(d.generic.LoopbackClientConfig)), d.clients.HTTP)
	if err != nil {
		return fmt.Errorf("building the loopback client of admission: %w", err)
	}
	d.dynamicAdmission, err = dynamicadmission.New(dynamicadmission.Config{
		Registry:   d.registry,
		Bound:      d.bindings,
		Authorizer: d.authorizer,
		Custom:     client,
		Scheme:     legacyscheme.Scheme,
		OpenAPI:    d.generic.OpenAPIV3Config,
	})
	if err != nil {
		return err
	}
	opts := d.options.Admission
	config := admission.Config{
		Registry:        d.registry,
		Types:           d.types,
		Exports:         d.exports,
		Authorizer:      d.authorizer,
		WithDeepSAR:     authorization.WithDeepSAR,
		Dynamic:         d.dynamicAdmission,
		Claims:          d.claims,
		Reserver:        d.bindingReserver(),
		InFlight:        d.quotaInFlight,
		Mounts:          d.options.FeatureEnabled(options.GateWorkspaceMounts),
		Counts:          d.objectCounts,
		Space:           d.space.Space,
		WorkspaceLimits: d.workspaceLimits,
		Enabled:         sets.New(opts.Enable...),
		Disabled:        sets.New(opts.Disable...),
	}
	config.MigrationRefusal = d.migrationRefusal()
	if opts.ConfigFile != "" {
		if config.LimitedResources, err = limits.ReadLimitedResources(opts.ConfigFile); err != nil {
			return fmt.Errorf("--admission-control-config-file: %w", err)
		}
	}
	control, err := admission.New(config)
	if err != nil {
		return fmt.Errorf("--enable-admission-plugins, --disable-admission-plugins: %w", err)
	}
	d.generic.AdmissionControl = virtual.NewAdmission(control)
	return nil
}

// flowShare is the fraction of all seats for one flow. It suffices to use many processors while requests wait for etcd.
const flowShare = 16

func (d *dependencies) applyFlowControl(context.Context) error {
	seats := d.generic.MaxRequestsInFlight + d.generic.MaxMutatingRequestsInFlight
	d.generic.FlowControl = flowcontrol.New(flowcontrol.Config{
		Seats:        seats,
		SeatsPerFlow: max(1, seats/flowShare),
		FlowOwner:    d.authorizer.FlowOwner,
		Origin:       authorization.Origin,

		MayWaitForTenant: d.mayWaitForTenant,
	})
	return nil
}

// mayWaitForTenant returns whether a request to one logical cluster may wait for a webhook or a mount of a tenant.
func (d *dependencies) mayWaitForTenant(ctx context.Context, info *request.RequestInfo) bool {
	if mount.HasTarget(ctx) {
		return true
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	isWrite := !slices.Contains([]string{"get", "list", "watch"}, info.Verb)
	return info.IsResourceRequest && d.dynamicAdmission.MayCallWebhooks(ctx, resource, isWrite)
}

func (d *dependencies) writeKubeconfig() error {
	if d.admin == nil {
		return nil
	}
	cert, _ := d.generic.SecureServing.Cert.CurrentCertKeyContent()
	return d.admin.WriteKubeconfig(d.options.ServerRun.ExternalHost, cert)
}

// rootCA returns the bundle of the config map kube-root-ca.crt of every namespace.
func (d *dependencies) rootCA() ([]byte, error) {
	if d.options.RootCAFile != "" {
		return os.ReadFile(d.options.RootCAFile)
	}
	cert, _ := d.generic.SecureServing.Cert.CurrentCertKeyContent()
	return cert, nil
}
