package options

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json

	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/shardserver/admission"
)

// upstreamFlags are the flags of stock option sets that a shard supports, by exact name or by prefix ("--etcd-*").
// Other flags of those sets are not registered, so that no flag is accepted without effect.
var upstreamFlags = []string{
	"audit-log-*", "audit-webhook-*", "audit-policy-file",
	"anonymous-auth", "api-audiences", "authentication-config", "authentication-token-webhook-*", "client-ca-file",
	"oidc-*", "requestheader-*", "token-auth-file", "service-account-*",
	"etcd-*", "encryption-provider-config*", "storage-media-type", "watch-cache",
	"bind-address", "secure-port", "cert-dir", "tls-*", "http2-max-streams-per-connection", "disable-http2-serving",
	"permit-address-sharing", "permit-port-sharing",
	"cors-allowed-origins", "goaway-chance", "livez-grace-period", "shutdown-delay-duration", "shutdown-send-retry-after",
	"shutdown-watch-termination-grace-period", "strict-transport-security-directives", "storage-initialization-timeout",
	"v", "vmodule", "logging-format", "log-flush-frequency", "profiling", "contention-profiling", "debug-socket-path",
}

// unsupportedFlags match a prefix above but are not registered, because they have no effect here.
var unsupportedFlags = map[string]bool{
	"service-account-signing-endpoint": true,
	// All keys of a shard must be in one etcd: logical clusters are counted, purged and moved by key ranges.
	"etcd-servers-overrides": true,
}

// AddFlags binds the options to named flag sets. Help prints them by set.
func (o *Options) AddFlags(fss *cliflag.NamedFlagSets) {
	fs := fss.FlagSet("Shard")
	fs.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory, "Directory of generated files. Empty: generate none, then --service-account-private-key-file is required.")
	fs.StringVar(&o.Shard.Name, "shard-name", o.Shard.Name, fmt.Sprintf("Name of this shard. The one called %q holds the root workspace; all others need --root-shard-kubeconfig-file and --cache-kubeconfig.", DefaultShardName))
	fs.StringVar(&o.Shard.RootKubeconfig, "root-shard-kubeconfig-file", o.Shard.RootKubeconfig, fmt.Sprintf("Credentials for the root shard, in the context %q: this shard learns from it what kcp's own APIs are stored by, and registers itself there. The root shard does not need it.", rootShardContext))
	fs.StringVar(&o.Shard.CacheKubeconfig, "cache-kubeconfig", o.Shard.CacheKubeconfig, "Credentials for the cache server, by which shards learn of each other. Default, on the root shard alone: a cache server in this process, at /services/cache.")
	fs.StringVar(&o.Shard.CacheKubeconfig, "cache-server-kubeconfig-file", o.Shard.CacheKubeconfig, "The same as --cache-kubeconfig.")
	_ = fs.MarkDeprecated("cache-server-kubeconfig-file", "use --cache-kubeconfig")
	fs.StringVar(&o.Shard.BaseURL, "shard-base-url", o.Shard.BaseURL, "URL that the front proxy and other shards reach this shard by. Default: https://<address>:<port>.")
	fs.StringVar(&o.Shard.ExternalURL, "shard-external-url", o.Shard.ExternalURL, "URL that users reach the installation by, the start of every workspace's URL. Default: --shard-base-url.")
	fs.StringVar(&o.Shard.VirtualWorkspaceURL, "shard-virtual-workspace-url", o.Shard.VirtualWorkspaceURL, "URL that virtual workspaces of this shard are reached by. Default: --shard-base-url.")
	fs.StringVar(&o.Shard.ClientCertFile, "shard-client-cert-file", o.Shard.ClientCertFile, "Client certificate of this shard towards the root shard and the cache server, where --root-shard-kubeconfig-file and --cache-kubeconfig hold no credentials.")
	fs.StringVar(&o.Shard.ClientKeyFile, "shard-client-key-file", o.Shard.ClientKeyFile, "Key of --shard-client-cert-file.")
	fs.StringVar(&o.Shard.LogicalClusterAdminKubeconfig, "logical-cluster-admin-kubeconfig", o.Shard.LogicalClusterAdminKubeconfig, "Credentials for logical clusters on other shards. No shard writes into another here: the file is checked to exist, and not used.")
	fs.StringVar(&o.Shard.ExternalLogicalClusterAdminKubeconfig, "external-logical-cluster-admin-kubeconfig", o.Shard.ExternalLogicalClusterAdminKubeconfig, "Credentials that reach other shards through the front proxy: service accounts of workspaces there are looked up with them, and unknown without.")
	fs.StringVar(&o.Shard.RootIdentitiesFile, "root-identities-file", o.Shard.RootIdentitiesFile, "YAML file \"identities: [{export: NAME, identity: VALUE}]\" that seeds the identities of the root exports. Existing ones stay.")
	fs.Int64Var(&o.Shard.MaxLogicalClusters, "shard-max-logical-clusters", o.Shard.MaxLogicalClusters, "How many logical clusters the shard is to hold. From then on new workspaces go to other shards. 0: any number.")
	fs.Int64Var(&o.Shard.MaxObjects, "shard-max-objects", o.Shard.MaxObjects, "How many objects the shard is to hold, in all its logical clusters. From then on new workspaces go to other shards. 0: any number.")
	fs.Int64Var(&o.Shard.MaxObjectsPerRemoteShard, "shard-max-objects-of-another", o.Shard.MaxObjectsPerRemoteShard, "How many objects that one other shard has published are kept; with more, what is not found counts as unknown. A cache server in this process takes as many. 0: any number.")
	fs.StringSliceVar(&o.BatteriesIncluded, "batteries-included", o.BatteriesIncluded, fmt.Sprintf("Optional content to bootstrap: %v. A plain list replaces the default; items with '+' or '-' change it.", allBatteries))
	fs.StringSliceVar(&o.FeatureGates, "feature-gates", o.FeatureGates, fmt.Sprintf("Name=true|false pairs. Known: %s.", strings.Join(knownGates(), ", ")))
	fs.Int64Var(&o.Objects.DefaultLimit, "logical-cluster-total-object-limit", o.Objects.DefaultLimit, "How many objects a logical cluster may hold that has no annotation core.kcp.io/max-total-objects. 0: any number. Not for root and system clusters.")
	fs.DurationVar(&o.Objects.ScanInterval, "logical-cluster-object-count-scan-interval", o.Objects.ScanInterval, "How often the objects of logical clusters with a limit are counted in storage. In between, creations and deletions are added up.")
	fs.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "How long events are kept.")
	fs.StringVar(&o.ProfilerAddress, "profiler-address", o.ProfilerAddress, "Address of a plain HTTP listener for pprof. Empty: none.")
	fs.BoolVar(&o.BindFreePort, "experimental-bind-free-port", o.BindFreePort, "Bind to a free port. Needs --secure-port=0.")
	_ = fs.MarkHidden("experimental-bind-free-port")
	o.addUnusedFlags(fs)

	o.EmbeddedEtcd.AddFlags(fss.FlagSet("Embedded etcd"))

	fs = fss.FlagSet("Controllers")
	c := &o.Controllers
	fs.BoolVar(&c.Enable, "run-controllers", c.Enable, "Run the controllers in this process.")
	fs.BoolVar(&c.EnableLeaderElection, "enable-leader-election", c.EnableLeaderElection, "Run the controllers in one replica of this shard at a time.")
	fs.StringVar(&c.LeaderElectionNamespace, "leader-election-namespace", c.LeaderElectionNamespace, "Namespace of the Lease in logical cluster system:admin.")
	fs.StringVar(&c.LeaderElectionName, "leader-election-name", c.LeaderElectionName, "Name of the Lease.")
	fs.StringVar(&o.RootCAFile, "root-ca-file", o.RootCAFile, "CA bundle published as kube-root-ca.crt. Default: the serving certificate.")
	fs.StringVar(&o.ServiceAccountPrivateKeyFile, "service-account-private-key-file", o.ServiceAccountPrivateKeyFile, "Key that signs service account tokens. Default: <root directory>/sa.key, created if absent.")

	fs = fss.FlagSet("Authorization")
	fs.StringSliceVar(&o.Authorization.AlwaysAllowPaths, "authorization-always-allow-paths", o.Authorization.AlwaysAllowPaths, "Paths that need no authorization.")
	a := &o.Authorization
	fs.StringSliceVar(&a.Order, "authorization-order", a.Order, "The authorizers in the order in which they are asked. One that is left out is off.")
	fs.StringVar(&a.WebhookConfigFile, "authorization-webhook-config-file", a.WebhookConfigFile, "Kubeconfig of a webhook to ask about what nothing else decided. Its reviews carry the logical cluster as extra authorization.kcp.io/cluster-name.")
	fs.StringVar(&a.WebhookVersion, "authorization-webhook-version", a.WebhookVersion, "Version of SubjectAccessReview to send to the webhook: v1 or v1beta1.")
	fs.DurationVar(&a.WebhookAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", a.WebhookAuthorizedTTL, "How long the webhook's permissions are remembered.")
	fs.DurationVar(&a.WebhookUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", a.WebhookUnauthorizedTTL, "How long the webhook's refusals are remembered.")

	fs = fss.FlagSet("Admission")
	fs.StringSliceVar(&o.Admission.Enable, "enable-admission-plugins", o.Admission.Enable, fmt.Sprintf("Admission plug-ins to run beside those that run by default. Known, in the order in which they run: %s.", strings.Join(admission.Names(), ", ")))
	fs.StringSliceVar(&o.Admission.Disable, "disable-admission-plugins", o.Admission.Disable, "Admission plug-ins not to run, of those that --enable-admission-plugins lists.")
	fs.StringVar(&o.Admission.ConfigFile, "admission-control-config-file", o.Admission.ConfigFile, "File of kind AdmissionConfiguration (apiserver.config.k8s.io/v1). KCPKubeResourceQuota takes a ResourceQuotaConfiguration; no other plug-in takes any.")

	fs = fss.FlagSet("Home workspaces")
	fs.BoolVar(&o.Home.Enabled, "enable-home-workspaces", o.Home.Enabled, "Give every user who asks for workspaces/~ in root a workspace of their own.")
	fs.StringSliceVar(&o.Home.CreatorGroups, "home-workspaces-home-creator-groups", o.Home.CreatorGroups, "Groups whose members may have a home workspace.")

	fs = fss.FlagSet("Virtual workspaces")
	fs.BoolVar(&o.RunVirtualWorkspaces, "run-virtual-workspaces", o.RunVirtualWorkspaces, "Serve virtual workspaces below /services/. Off, with --shard-virtual-workspace-url, they are served to the server behind that URL (virtual-workspaces), which says who is asking; without one there are none, and initializers and terminators with controllers outside of the shard never end.")

	fs = fss.FlagSet("Shared index")
	o.SharedIndex.AddFlags(fs, "This shard writes what is on it.")
	o.SharedIndex.AddWriterFlags(fs)

	fs = fss.FlagSet("Admin authentication")
	fs.StringVar(&o.AdminAuth.KubeconfigPath, "kubeconfig-path", o.AdminAuth.KubeconfigPath, "Where to write the admin kubeconfig. Default: <root directory>/admin.kubeconfig.")
	fs.StringVar(&o.AdminAuth.TokenHashPath, "authentication-admin-token-path", o.AdminAuth.TokenHashPath, "File with the SHA-256 of the shard-admin token. Default: <root directory>/.admin-token-store.")

	for _, stock := range []struct {
		name string
		add  func(*pflag.FlagSet)
	}{
		{"Etcd", o.Etcd.AddFlags},
		{"Secure serving", o.SecureServing.AddFlags},
		{"Authentication", o.Authentication.AddFlags},
		{"Audit", o.Audit.AddFlags},
		{"Generic", o.ServerRun.AddUniversalFlags},
		{"Debug", o.Features.AddFlags},
		{"Logs", func(fs *pflag.FlagSet) { logsapi.AddFlags(o.Logs, fs) }},
	} {
		all := pflag.NewFlagSet(stock.name, pflag.ContinueOnError)
		stock.add(all)
		target := fss.FlagSet(stock.name)
		all.VisitAll(func(flag *pflag.Flag) {
			if isSupportedFlag(flag.Name) {
				target.AddFlag(flag)
			}
		})
	}
	if flag := fss.FlagSet("Etcd").Lookup("etcd-servers"); flag != nil {
		flag.Usage = embeddedetcd.ServersUsage
	}
}

func isSupportedFlag(name string) bool {
	if unsupportedFlags[name] {
		return false
	}
	for _, pattern := range upstreamFlags {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, prefix) || name == pattern {
			return true
		}
	}
	return false
}
