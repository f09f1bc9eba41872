package shardserver

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"
	"k8s.io/kubernetes/pkg/serviceaccount"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/shardserver/admission"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/apis/builtin"
	kcpopenapi "github.com/atoll-dev/atoll/shardserver/apis/openapi"
	"github.com/atoll-dev/atoll/shardserver/authentication"
	"github.com/atoll-dev/atoll/shardserver/authentication/adminauth"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
	"github.com/atoll-dev/atoll/shardserver/customresources"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/filters"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
	"github.com/atoll-dev/atoll/shardserver/filters/flowcontrol"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/objectcount"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/metrics"
	"github.com/atoll-dev/atoll/shardserver/openapi"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/mount"
	"github.com/atoll-dev/atoll/shardserver/tenancy/watchterminator"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// Config is everything an API server is made of, before it exists.
type Config struct {
	Generic *genericapiserver.Config

	options     options.Completed
	registry    *storage.Registry
	authorizer  *authorization.Authorizer
	types       *workspacetype.Resolver
	typeIndex   *workspacetype.Index
	virtual     *virtual.Set
	connections *watchterminator.Connections
	tokenIssuer serviceaccount.TokenGenerator
	tokenKeys   serviceaccount.PublicKeysGetter
	rest        *restOptions
	admin       *adminauth.Admin
	clients     *loopback.Clients
	// server is what the configuration has become, set before it serves.
	server    *genericapiserver.GenericAPIServer
	discovery *discovery.Handler
	openapi   *openapi.Handler
	// shared knows definitions by content.
	shared *apiextensions.Shared
	// definitions and custom serve what definitions of logical clusters bring.
	definitions *customresources.Catalog
	custom      *customresources.Handler
	dynamic     *dynamic.Plugins
	// bindings knows what logical clusters have bound, exports where that comes from.
	bindings *bindings.Index
	exports  *apiindex.Catalog
	// logicalClusters reads what logical clusters say of themselves.
	logicalClusters *storage.Reader[*corev1alpha1.LogicalCluster]
	// origin is what joins a shard that is not root to the root shard; nil on that one itself.
	origin *origin
	// claims knows which labels objects carry for providers that claim them.
	claims *claims.Index
	// inFlight is what admission charged quotas for.
	inFlight *quota.InFlight
	// keys is what lies in etcd, below all registries.
	keys *etcdkeys.Keyspace
	// counts are the numbers of objects of logical clusters that have a limit.
	counts *objectcount.Counts
}

func newConfig(ctx context.Context, opts options.Completed, registry *storage.Registry) (*Config, error) {
	c := &Config{
		Generic:  genericapiserver.NewConfig(legacyscheme.Codecs),
		options:  opts,
		registry: registry,
		inFlight: quota.NewInFlight(),
		keys: etcdkeys.New(etcdkeys.Config{
			Transport: opts.Etcd.StorageConfig.Transport, Prefix: opts.Etcd.StorageConfig.Prefix, Registry: registry,
		}),
		virtual: virtual.NewSet(),
	}
	c.logicalClusters = storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters"))
	c.typeIndex = workspacetype.NewIndex(registry)
	c.types = workspacetype.NewResolver(workspacetype.Stored(registry, c.typeIndex))
	c.bindings, c.exports = bindings.NewIndex(registry), apiindex.NewCatalog(registry, c.types.Locate)
	c.claims = claims.NewIndex(registry, c.bindings)
	c.counts = objectcount.New(objectcount.Config{
		Registry: registry, Keys: c.keys, Shard: opts.Shard.Name,
		DefaultLimit: opts.Objects.DefaultLimit, Interval: opts.Objects.ScanInterval,
	})
	for _, step := range []func(context.Context) error{
		c.applyServing, c.applyOpenAPI, c.applyStorage, c.applyAuthentication, c.applyAuthorization, c.applyAdmission, c.applyAudit, c.applyFairness,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	registry.SetVisible(c.visible)
	c.connections = watchterminator.New(c.Generic.LongRunningFunc)
	c.Generic.BuildHandlerChainFunc = c.handlerChain
	return c, nil
}

func (c *Config) applyServing(context.Context) error {
	if err := c.options.ServerRun.ApplyTo(c.Generic); err != nil {
		return err
	}
	if err := c.options.SecureServing.ApplyToConfig(c.Generic); err != nil {
		return fmt.Errorf("opening the secure port: %w", err)
	}
	if err := c.options.Features.ApplyTo(c.Generic, nil, nil); err != nil {
		return err
	}
	c.Generic.EffectiveVersion = linked{c.Generic.EffectiveVersion}
	metrics.Bound(legacyscheme.Scheme)
	c.Generic.EnableMetrics = false // package metrics serves them, with the shard's own
	c.Generic.LoopbackClientConfig.DisableCompression = true
	c.Generic.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	var err error
	c.clients, err = loopback.NewClients(c.Generic.LoopbackClientConfig)
	return err
}

func (c *Config) applyOpenAPI(context.Context) error {
	definitions := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := generatedopenapi.GetOpenAPIDefinitions(ref)
		for name, definition := range kcpopenapi.GetOpenAPIDefinitions(ref) {
			all[name] = definition
		}
		return all
	}
	namer := openapinamer.NewDefinitionNamer(legacyscheme.Scheme)
	c.Generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	c.Generic.OpenAPIConfig.Info.Title = "Atoll"
	c.Generic.OpenAPIConfig.GetDefinitionName = kcpopenapi.WithoutInternal(namer.GetDefinitionName)
	c.Generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	c.Generic.OpenAPIV3Config.Info.Title = "Atoll"
	c.Generic.OpenAPIV3Config.GetDefinitionName = kcpopenapi.WithoutInternal(namer.GetDefinitionName)
	return nil
}

func (c *Config) applyStorage(context.Context) error {
	resources := builtin.Resources()
	c.Generic.MergedResourceConfig = resources
	c.options.Etcd.StorageConfig.StorageObjectCountTracker = c.Generic.StorageObjectCountTracker
	rest, err := newRESTOptions(c.options.Etcd, resources)
	if err != nil {
		return err
	}
	rest.cacheAPIs = c.options.FeatureEnabled(options.GateCacheAPIs)
	c.rest = rest
	if err := c.options.Etcd.ApplyWithStorageFactoryTo(rest.factory, c.Generic); err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}
	rest.transformers = c.Generic.ResourceTransformers
	c.Generic.RESTOptionsGetter = rest
	return nil
}

func (c *Config) applyAuthentication(ctx context.Context) error {
	stock, err := c.options.Authentication.ToAuthenticationConfig()
	if err != nil {
		return fmt.Errorf("authentication flags: %w", err)
	}
	stock.SecretsWriter = c.clients.Kubernetes.CoreV1()
	stock.APIServerID = c.Generic.APIServerID
	info := &c.Generic.Authentication
	info.RequestHeaderConfig = stock.RequestHeaderConfig
	info.APIAudiences = stock.APIAudiences
	if err := acceptClientCertificates(stock, info, c.Generic.SecureServing); err != nil {
		return err
	}
	tokens := map[string]*user.DefaultInfo{}
	if c.options.Batteries[options.BatteryAdmin] {
		c.admin, err = adminauth.New(adminauth.Config{
			KubeconfigPath: c.options.AdminAuth.KubeconfigPath,
			TokenHashPath:  c.options.AdminAuth.TokenHashPath,
			WithUser:       c.options.Batteries[options.BatteryUser],
		})
		if err != nil {
			return fmt.Errorf("preparing the admin kubeconfig: %w", err)
		}
		tokens = c.admin.Tokens()
	}
	c.tokenKeys = stock.ServiceAccountPublicKeysGetter
	config := authentication.Config{Stock: stock, Registry: c.registry, Types: c.typeIndex, AdminTokens: tokens}
	if config.Proxy, err = c.options.ProxyConfig(); err != nil {
		return err
	}
	if c.options.FeatureEnabled(options.GateWorkspaceAuthentication) {
		config.Issuers = issuers.New(ctx, authenticator.Audiences(c.options.Authentication.APIAudiences), stock.APIAudiences)
	}
	info.Authenticator, err = authentication.New(ctx, config)
	if err != nil {
		return fmt.Errorf("creating the authenticator: %w", err)
	}
	key, err := keyutil.PrivateKeyFromFile(c.options.ServiceAccountPrivateKeyFile)
	if err != nil {
		return fmt.Errorf("--service-account-private-key-file: %w", err)
	}
	c.tokenIssuer, err = authentication.NewTokenGenerator(c.options.Authentication.ServiceAccounts.Issuers[0], key)
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

func (c *Config) applyAuthorization(context.Context) error {
	given := c.options.Authorization
	config := authorization.Config{
		Registry: c.registry, Bound: c.bindings, Exports: c.exports, AlwaysAllowPaths: given.AlwaysAllowPaths, Order: given.Order,
		Audited: func() bool { return c.Generic.AuditBackend != nil },
	}
	if given.WebhookConfigFile != "" {
		webhook, err := authorization.NewWebhook(authorization.WebhookConfig{
			Kubeconfig: given.WebhookConfigFile,
			Version:    given.WebhookVersion,
			AllowedTTL: given.WebhookAuthorizedTTL,
			DeniedTTL:  given.WebhookUnauthorizedTTL,
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
	c.authorizer = authorizer
	c.Generic.Authorization.Authorizer = c.virtual.Authorizer(mount.Authorizer(c.homeAuthorizer(authorizer)))
	c.Generic.RuleResolver = authorizer
	return nil
}

func (c *Config) applyAdmission(context.Context) error {
	var err error
	if c.dynamic, err = c.newDynamicAdmission(); err != nil {
		return err
	}
	given := c.options.Admission
	config := admission.Config{
		Registry:   c.registry,
		Types:      c.types,
		Exports:    c.exports,
		Authorizer: c.authorizer,
		Deep:       authorization.WithDeep,
		Dynamic:    c.dynamic,
		Claims:     c.claims,
		Reserver:   c.reserver(),
		InFlight:   c.inFlight,
		Mounts:     c.options.FeatureEnabled(options.GateWorkspaceMounts),
		Counts:     c.counts,
		Enabled:    sets.New(given.Enable...),
		Disabled:   sets.New(given.Disable...),
	}
	if given.ConfigFile != "" {
		if config.Limited, err = admission.ReadLimited(given.ConfigFile); err != nil {
			return fmt.Errorf("--admission-control-config-file: %w", err)
		}
	}
	control, err := admission.New(config)
	if err != nil {
		return fmt.Errorf("--enable-admission-plugins, --disable-admission-plugins: %w", err)
	}
	c.Generic.AdmissionControl = virtual.Admission(control)
	return nil
}

func (c *Config) applyAudit(context.Context) error { return c.options.Audit.ApplyTo(c.Generic) }

func (c *Config) applyFairness(context.Context) error {
	controller, err := flowcontrol.New(flowcontrol.DefaultLimits(), c.authorizer.Payer)
	if err != nil {
		return fmt.Errorf("dividing the shard between logical clusters: %w", err)
	}
	c.Generic.FlowControl = controller
	return nil
}

// handlerChain puts the stock chain between our outermost filters, which find the cluster, and our innermost, which
// keeps to it (wall W7: nothing is served outside of this chain).
func (c *Config) handlerChain(apiHandler http.Handler, generic *genericapiserver.Config) http.Handler {
	handler := c.withDocuments(c.custom.Wrap(apiHandler), generic)
	handler = filters.WithResourceRules(handler, c.registry, generic.Serializer)
	handler = authorization.WithDeepReview(handler)
	handler = authorization.WithImpersonationScope(handler)
	handler = c.withHome(handler, generic.Serializer)
	handler = c.virtual.WithServing(handler, generic.Serializer)
	handler = mount.With(handler)
	handler = c.connections.With(handler, c.registry)
	handler = genericapiserver.DefaultBuildHandlerChain(handler, generic)
	handler = requester.With(handler)
	handler = authorization.WithoutInactive(handler, c.registry, generic.Serializer)
	if generic.AuditBackend != nil {
		handler = audit.WithCluster(handler)
	}
	handler = c.virtual.WithRequest(handler)
	handler = filters.WithCluster(handler, audit.Refused(generic), filters.NewResolver(c.registry, c.options.Shard.Name, c.options.FeatureEnabled(options.GateWorkspaceMounts)), generic.Serializer)
	return authentication.WithInClusterRewrite(handler)
}

func (c *Config) createGroups(ctx context.Context) (*apiGroups, error) {
	return newAPIGroups(ctx, builtin.Config{
		Resources:          c.Generic.MergedResourceConfig,
		EventTTL:           c.options.EventTTL,
		Authenticator:      c.Generic.Authentication.Authenticator,
		APIAudiences:       c.Generic.Authentication.APIAudiences,
		Authorizer:         c.authorizer,
		RuleResolver:       c.authorizer,
		ResourceOf:         resourceOf(c.registry),
		TokenIssuer:        c.tokenIssuer,
		TokenMaxExpiration: c.options.Authentication.ServiceAccounts.MaxExpiration,
		ExtendTokens:       c.options.Authentication.ServiceAccounts.ExtendExpiration,
		TokenMaxExtension:  c.options.Authentication.ServiceAccounts.MaxExtendedExpiration,
	}, c.rest, c.registry, c.authorizer, c.identify)
}

func (c *Config) writeKubeconfig() error {
	if c.admin == nil {
		return nil
	}
	cert, _ := c.Generic.SecureServing.Cert.CurrentCertKeyContent()
	return c.admin.WriteKubeconfig(c.options.ServerRun.ExternalHost, cert)
}

// rootCA returns the bundle that workspaces publish as kube-root-ca.crt.
func (c *Config) rootCA() ([]byte, error) {
	if c.options.RootCAFile != "" {
		return os.ReadFile(c.options.RootCAFile)
	}
	cert, _ := c.Generic.SecureServing.Cert.CurrentCertKeyContent()
	return cert, nil
}
