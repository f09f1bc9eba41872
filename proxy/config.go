package proxy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"

	"github.com/atoll-dev/atoll/internal/certexpiry"
	"github.com/atoll-dev/atoll/internal/kubeconfig"
	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/internal/servingcert"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/internal/writetimeout"
	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/inflight"
	"github.com/atoll-dev/atoll/proxy/mapping"
	"github.com/atoll-dev/atoll/proxy/metrics"
	"github.com/atoll-dev/atoll/proxy/options"
	"github.com/atoll-dev/atoll/proxy/shards"
)

// Config is everything the server is built from, loaded from the files that the options name.
type Config struct {
	Mappings []mapping.Entry
	// Shards holds the credentials for all shards; nil where they are not needed.
	Shards *rest.Config
	// Root reaches the root shard; nil where no kubeconfig is given.
	Root *rest.Config
	// Peers are the servers that Shard objects are read from; nil for the root shard.
	Peers *shards.Peers
	// SharedIndex, if enabled, is read instead of watching the shards.
	SharedIndex *sharedindex.Options
	// Subset selects the shards that the proxy serves.
	Subset shards.Subset

	Serving        *genericapiserver.SecureServingInfo
	Authentication kubeauthenticator.Config
	// LookupServiceAccounts reviews service account tokens at the shard of their logical cluster.
	LookupServiceAccounts bool
	Groups                identity.GroupFilter
	// WorkspaceAuthentication accepts tokens of the issuers that a workspace type names, in workspaces of this type.
	WorkspaceAuthentication bool
	// RequiredAudiences are those of --api-audiences. If any, tokens of workspace issuers must be for one of them.
	RequiredAudiences authenticator.Audiences

	// InFlight limits the concurrent requests of each user.
	InFlight           inflight.Limits
	CORSAllowedOrigins []string
	ProfilerAddress    string
	ShutdownTimeout    time.Duration
	// WriteTimeouts end responses that clients do not read.
	WriteTimeouts writetimeout.Timeouts

	// Certificates is the metric of the certificates that the proxy presents to clients and to other servers.
	Certificates *certexpiry.Collector
	// MetricsAuthorizer authorizes requests for /metrics; Complete sets it.
	MetricsAuthorizer authorizer.UnconditionalAuthorizer
}

// NewConfig loads the files and opens the listener.
func NewConfig(o options.CompletedOptions) (*Config, error) {
	c := &Config{
		Groups:             identity.GroupFilter{PassOn: o.PassOnGroups, Drop: o.DropGroups},
		InFlight:           o.InFlight,
		CORSAllowedOrigins: o.CORSAllowedOrigins,

		WorkspaceAuthentication: o.FeatureEnabled(options.GateWorkspaceAuthentication),
		RequiredAudiences:       o.Authentication.APIAudiences,
		ProfilerAddress:         o.ProfilerAddress,
		ShutdownTimeout:         o.ShutdownTimeout,
		WriteTimeouts:           o.WriteTimeouts,
		SharedIndex:             o.SharedIndex,
		Subset:                  shards.Subset{Names: o.Shards},
	}
	var err error
	if o.ShardSelector != "" {
		if c.Subset.Selector, err = labels.Parse(o.ShardSelector); err != nil {
			return nil, fmt.Errorf("--shard-selector: %w", err)
		}
	}
	if c.Mappings, err = mapping.Load(o.MappingFile); err != nil {
		return nil, fmt.Errorf("--mapping-file: %w", err)
	}
	if o.ShardsKubeconfig != "" {
		if c.Shards, err = loadKubeconfig(o.ShardsKubeconfig); err != nil {
			return nil, fmt.Errorf("--shards-kubeconfig: %w", err)
		}
	}
	if o.RootKubeconfig != "" {
		if c.Root, err = loadKubeconfig(o.RootKubeconfig); err != nil {
			return nil, fmt.Errorf("--root-kubeconfig: %w", err)
		}
	}
	if len(o.ShardPeerKubeconfigs) > 0 {
		if c.Peers, err = loadPeers(o.ShardPeerKubeconfigs); err != nil {
			return nil, fmt.Errorf("--shard-peer-kubeconfig: %w", err)
		}
	}
	for _, entry := range c.Mappings {
		if entry.IsShards() && c.Root == nil && !c.SharedIndex.Enabled() {
			return nil, fmt.Errorf("--root-kubeconfig: got nothing, expected a kubeconfig of the root shard, because %s maps %s and there is no shared index", o.MappingFile, mapping.ShardsPath)
		}
	}
	if c.Authentication, err = o.Authentication.ToAuthenticationConfig(); err != nil {
		return nil, fmt.Errorf("authentication flags: %w", err)
	}
	if file := c.Authentication.AuthenticationConfig; file != nil && file.Anonymous != nil {
		return nil, fmt.Errorf("--authentication-config: got a section for anonymous users, expected none: shards decide about them")
	}
	c.LookupServiceAccounts = c.Authentication.ServiceAccountPublicKeysGetter != nil && c.Authentication.ServiceAccountLookup
	if c.LookupServiceAccounts && c.Shards == nil {
		return nil, fmt.Errorf("--shards-kubeconfig: got nothing, expected credentials to look up tokens at their shards; or set --service-account-lookup=false")
	}

	if err := servingcert.Default(o.SecureServing, "localhost", nil, nil); err != nil {
		return nil, fmt.Errorf("generating a serving certificate below --root-directory: %w", err)
	}
	if err := o.SecureServing.ApplyTo(&c.Serving); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	c.Serving.Listener = c.WriteTimeouts.NewListener(c.Serving.Listener)
	c.addCertificates(o)
	return c, nil
}

func (c *Config) addCertificates(o options.CompletedOptions) {
	c.Certificates = certexpiry.New()
	c.Certificates.AddFile("tls-cert-file", o.SecureServing.ServerCert.CertKey.CertFile)
	c.Certificates.AddFile("shared-index-etcd-certfile", o.SharedIndex.CertFile)
	c.Certificates.AddClient("root-kubeconfig", c.Root)
	c.Certificates.AddClient("shards-kubeconfig", c.Shards)
	if c.Peers != nil {
		c.Certificates.AddClient("shard-peer-kubeconfig", c.Peers.Config)
	}
	for _, entry := range c.Mappings {
		c.Certificates.AddFile("mapping-file", entry.ProxyClientCert)
	}
}

// loadKubeconfig reads the current context of the file. Client-side rate limits are off, because the proxy itself
// sends few requests.
func loadKubeconfig(file string) (*rest.Config, error) {
	config, err := kubeconfig.Load(file, "")
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return rest.AddUserAgent(config, "kcp-front-proxy"), nil
}

// CompletedConfig is a Config whose derived parts are built.
type CompletedConfig struct{ *completedConfig }

type completedConfig struct{ Config }

// Complete sets the authorizer of /metrics and the CAs that the TLS handshake advertises.
func (c *Config) Complete() (CompletedConfig, error) {
	out := *c
	if out.MetricsAuthorizer == nil && out.Root != nil {
		root := rest.CopyConfig(out.Root)
		root.Host = shards.TrimClusterPath(root.Host)
		var err error
		if out.MetricsAuthorizer, err = metrics.NewAuthorizer(root); err != nil {
			return CompletedConfig{}, err
		}
	}
	// Both CAs are advertised: that of users, and that of proxies which authenticate users by request header.
	var clientCAs []dynamiccertificates.CAContentProvider
	if ca := out.Authentication.ClientCAContentProvider; ca != nil {
		clientCAs = append(clientCAs, ca)
	}
	if header := out.Authentication.RequestHeaderConfig; header != nil && header.CAContentProvider != nil {
		clientCAs = append(clientCAs, header.CAContentProvider)
	}
	if out.Serving != nil && len(clientCAs) > 0 {
		serving := *out.Serving
		serving.ClientCA = dynamiccertificates.NewUnionCAContentProvider(clientCAs...)
		out.Serving = &serving
	}
	return CompletedConfig{&completedConfig{out}}, nil
}

// newAuthenticator returns the authentication chain; ctx ends its background work.
func (c CompletedConfig) newAuthenticator(ctx context.Context, lookup serviceaccounttokens.Lookup) (*identity.Authenticator, error) {
	if !c.LookupServiceAccounts {
		lookup = nil
	}
	return identity.NewAuthenticator(ctx, c.Authentication, lookup, c.Groups)
}
