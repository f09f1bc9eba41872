package options

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json

	"github.com/atoll-dev/atoll/internal/stockflags"
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
	"cors-allowed-origins", "goaway-chance", "livez-grace-period", "max-mutating-requests-inflight", "max-requests-inflight", "shutdown-delay-duration", "shutdown-send-retry-after",
	"shutdown-watch-termination-grace-period", "strict-transport-security-directives", "storage-initialization-timeout",
	"v", "vmodule", "logging-format", "log-flush-frequency", "profiling", "contention-profiling", "debug-socket-path",
	// Not those for label values: the shard itself limits the values that tenants choose.
	"show-hidden-metrics-for-version", "disabled-metrics",
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
	fs.StringVar(&o.Shard.RootKubeconfig, "root-shard-kubeconfig-file", o.Shard.RootKubeconfig, fmt.Sprintf("Credentials for the root shard, in the context %q: this shard reads the identities of kcp's own APIs from it, and registers itself there. The root shard does not need it.", rootShardContext))
	fs.StringVar(&o.Shard.CacheKubeconfig, "cache-kubeconfig", o.Shard.CacheKubeconfig, "Credentials for the cache server, through which shards exchange objects. Default on the root shard: a cache server in this process, at /services/cache.")
	fs.StringVar(&o.Shard.CacheKubeconfig, "cache-server-kubeconfig-file", o.Shard.CacheKubeconfig, "The same as --cache-kubeconfig.")
	_ = fs.MarkDeprecated("cache-server-kubeconfig-file", "use --cache-kubeconfig")
	fs.StringVar(&o.Shard.BaseURL, "shard-base-url", o.Shard.BaseURL, "URL of this shard for the front proxy and other shards. Default: https://<address>:<port>.")
	fs.StringVar(&o.Shard.ExternalURL, "shard-external-url", o.Shard.ExternalURL, "URL of the installation for users, the prefix of the URLs of workspaces. Default: --shard-base-url.")
	fs.StringVar(&o.Shard.VirtualWorkspaceURL, "shard-virtual-workspace-url", o.Shard.VirtualWorkspaceURL, "URL of the virtual workspaces of this shard. Default: --shard-base-url.")
	fs.StringToStringVar(&o.Shard.Labels, "shard-labels", o.Shard.Labels, "Labels of this shard's Shard object, as in region=eu,tier=gold. The shard sets them again at every start. Workspaces select shards by them.")
	fs.StringVar(&o.Shard.ClientCertFile, "shard-client-cert-file", o.Shard.ClientCertFile, "Client certificate of this shard for the root shard and the cache server, if --root-shard-kubeconfig-file and --cache-kubeconfig contain no credentials.")
	fs.StringVar(&o.Shard.ClientKeyFile, "shard-client-key-file", o.Shard.ClientKeyFile, "Key of --shard-client-cert-file.")
	fs.StringVar(&o.Shard.Backends.CA, "subresource-backend-ca-file", o.Shard.Backends.CA, "CA of the servers of custom subresources of exports, whose addresses providers choose. It must sign no server of the installation. It is read at the start. Without it custom subresources are unavailable.")
	fs.StringVar(&o.Shard.VirtualWorkspaceCA, "shard-virtual-workspace-ca-file", o.Shard.VirtualWorkspaceCA, "CA of the virtual workspaces of other shards, from which logical clusters move to this one (feature gate LogicalClusterMigration). This shard connects with --shard-client-cert-file.")
	fs.StringVar(&o.Shard.Backends.ClientCert, "subresource-backend-client-cert-file", o.Shard.Backends.ClientCert, "Client certificate for the servers of custom subresources, which trust the user headers of the requests because of it. It must have no permission in the installation.")
	fs.StringVar(&o.Shard.Backends.ClientKey, "subresource-backend-client-key-file", o.Shard.Backends.ClientKey, "Key of --subresource-backend-client-cert-file.")
	fs.StringVar(&o.Shard.LogicalClusterAdminKubeconfig, "logical-cluster-admin-kubeconfig", o.Shard.LogicalClusterAdminKubeconfig, "Credentials for logical clusters on other shards. The file must exist and is not used: shards do not write to each other.")
	fs.StringVar(&o.Shard.ExternalLogicalClusterAdminKubeconfig, "external-logical-cluster-admin-kubeconfig", o.Shard.ExternalLogicalClusterAdminKubeconfig, "Address and CA of the front proxy, through which service account tokens of workspaces on other shards are reviewed by their shards. Its credentials are not used. Without it, such tokens are rejected.")
	fs.StringVar(&o.Shard.RootIdentitiesFile, "root-identities-file", o.Shard.RootIdentitiesFile, "YAML file \"identities: [{export: NAME, identity: VALUE}]\" that seeds the identities of the root exports. Existing identities are kept.")
	fs.Int64Var(&o.Shard.MaxLogicalClusters, "shard-max-logical-clusters", o.Shard.MaxLogicalClusters, "Maximum number of logical clusters. When it is reached, new workspaces are scheduled to other shards. 0: unlimited.")
	fs.Int64Var(&o.Shard.MaxObjects, "shard-max-objects", o.Shard.MaxObjects, "Maximum number of objects in all logical clusters of the shard. When it is reached, new workspaces are scheduled to other shards. 0: unlimited.")
	fs.Int64Var(&o.Shard.MaxObjectsPerRemoteShard, "shard-max-objects-of-another", o.Shard.MaxObjectsPerRemoteShard, "Maximum number of replicated objects of one other shard, here and in a cache server in this process. Beyond it, the replicas of that shard count as not synced. 0: unlimited.")
	fs.StringSliceVar(&o.BatteriesIncluded, "batteries-included", o.BatteriesIncluded, fmt.Sprintf("Optional content to bootstrap: %v. A plain list replaces the default; items with '+' or '-' change it.", allBatteries))
	fs.StringSliceVar(&o.FeatureGates, "feature-gates", o.FeatureGates, fmt.Sprintf("Name=true|false pairs. Known: %s.", strings.Join(knownGates(), ", ")))
	fs.Int64Var(&o.Objects.DefaultLimit, "logical-cluster-total-object-limit", o.Objects.DefaultLimit, "Maximum number of objects of a logical cluster without the annotation core.kcp.io/max-total-objects. 0: unlimited. Does not apply to root and system clusters.")
	fs.Int64Var(&o.Objects.DefaultByteLimit, "logical-cluster-total-byte-limit", o.Objects.DefaultByteLimit, "Maximum size of all objects of a logical cluster as they are stored, events included, in bytes, without the annotation core.kcp.io/max-total-bytes. -1: 128 MiB, or a sixteenth of the quota that etcd reports if that is less. 0: unlimited. Does not apply to root and system clusters.")
	fs.DurationVar(&o.Objects.ScanInterval, "logical-cluster-object-count-scan-interval", o.Objects.ScanInterval, "How often the objects of logical clusters with a limit are counted in storage. In between, creations and deletions are added up.")
	fs.DurationVar(&o.UsageInterval, "usage-flush-interval", o.UsageInterval, "How often the usage of logical clusters is added to their records in etcd. A process that is killed loses that of one interval.")
	fs.Int64Var(&o.WorkspaceAuditBytes, "workspace-audit-log-bytes", o.WorkspaceAuditBytes, "Memory for the latest audit events of workspaces, which their administrators read at /audit in the workspace. 0: none are kept.")
	fs.StringVar(&o.AuditSinksFile, "audit-sinks-file", o.AuditSinksFile, "YAML file of kind AuditSinks: webhooks, files and S3 buckets that get the audit events of selected workspaces, each by a policy of its own.")
	fs.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "How long events are kept.")
	fs.StringVar(&o.ProfilerAddress, "profiler-address", o.ProfilerAddress, "Address of a plain HTTP listener for pprof. Empty: none.")
	fs.BoolVar(&o.BindFreePort, "experimental-bind-free-port", o.BindFreePort, "Bind to a free port. Needs --secure-port=0.")
	_ = fs.MarkHidden("experimental-bind-free-port")
	o.EtcdOwner.AddFlags(fs, "the value of --shard-name")
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
	fs.Int32SliceVar(&o.ServiceAccountKeyGenerations, "service-account-key-generations", o.ServiceAccountKeyGenerations, "Generations of the keys of --service-account-key-file, in their order, if the installation has given its shards other keys. Keys of generations below the lowest are retired: logical clusters that move here, or have moved here, do not bring them any more. Further files have the last one of the list. Empty: all keys are of generation 1.")
	fs.StringArrayVar(&o.RemoteServiceAccountKeyFiles, "remote-service-account-key-file", o.RemoteServiceAccountKeyFiles, "File with public keys that sign service account tokens on other shards. A token that one of them signed is valid if the shard of its workspace accepts it, and never for a workspace on this shard, whose tokens need a key of --service-account-key-file. May be repeated.")

	fs = fss.FlagSet("Authorization")
	fs.StringSliceVar(&o.Authorization.AlwaysAllowPaths, "authorization-always-allow-paths", o.Authorization.AlwaysAllowPaths, "Paths that need no authorization.")
	a := &o.Authorization
	fs.StringSliceVar(&a.Order, "authorization-order", a.Order, "The authorizers in evaluation order. Authorizers that are not listed are disabled.")
	fs.StringVar(&a.WebhookConfigFile, "authorization-webhook-config-file", a.WebhookConfigFile, "Kubeconfig of a webhook for requests that no authorizer before it in --authorization-order decides. Its reviews contain the logical cluster, if a request is to one, as extra authorization.kcp.io/cluster-name.")
	fs.StringVar(&a.WebhookVersion, "authorization-webhook-version", a.WebhookVersion, "Version of SubjectAccessReview to send to the webhook: v1 or v1beta1.")
	fs.DurationVar(&a.WebhookAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", a.WebhookAuthorizedTTL, "How long 'authorized' responses of the webhook are cached.")
	fs.DurationVar(&a.WebhookUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", a.WebhookUnauthorizedTTL, "How long 'unauthorized' responses of the webhook are cached.")

	fs = fss.FlagSet("Admission")
	fs.StringSliceVar(&o.Admission.Enable, "enable-admission-plugins", o.Admission.Enable, fmt.Sprintf("Admission plug-ins to run in addition to the default ones. Known, in evaluation order: %s.", strings.Join(admission.Names(), ", ")))
	fs.StringSliceVar(&o.Admission.Disable, "disable-admission-plugins", o.Admission.Disable, "Admission plug-ins to disable, of those that --enable-admission-plugins lists.")
	fs.StringVar(&o.Admission.ConfigFile, "admission-control-config-file", o.Admission.ConfigFile, "File of kind AdmissionConfiguration (apiserver.config.k8s.io/v1). KCPKubeResourceQuota takes a ResourceQuotaConfiguration; other plug-ins have no configuration.")

	fs = fss.FlagSet("Home workspaces")
	fs.BoolVar(&o.Home.Enabled, "enable-home-workspaces", o.Home.Enabled, "Create a home workspace for every user who requests workspaces/~ in root.")
	fs.StringSliceVar(&o.Home.CreatorGroups, "home-workspaces-home-creator-groups", o.Home.CreatorGroups, "Groups whose members may have a home workspace.")

	fs = fss.FlagSet("Virtual workspaces")
	fs.BoolVar(&o.RunVirtualWorkspaces, "run-virtual-workspaces", o.RunVirtualWorkspaces, "Serve virtual workspaces below /services/. If disabled, and --shard-virtual-workspace-url is set, they are served only to the server at that URL (virtual-workspaces), which authenticates the users; without that URL there are no virtual workspaces, and initializers and terminators with controllers outside of the shard are never removed.")

	fs = fss.FlagSet("Shared index")
	o.SharedIndex.AddFlags(fs, "This shard writes its content to it.")
	o.SharedIndex.AddWriterFlags(fs)

	fs = fss.FlagSet("Admin authentication")
	fs.StringVar(&o.AdminAuth.KubeconfigPath, "kubeconfig-path", o.AdminAuth.KubeconfigPath, "Where to write the admin kubeconfig. Default: <root directory>/admin.kubeconfig.")
	fs.StringVar(&o.AdminAuth.TokenHashPath, "authentication-admin-token-path", o.AdminAuth.TokenHashPath, "File with the SHA-256 of the shard-admin token. Default: <root directory>/.admin-token-store.")

	stockflags.Add(fss, upstreamFlags, unsupportedFlags,
		stockflags.Set{Name: "Etcd", AddFlags: o.Etcd.AddFlags},
		stockflags.Set{Name: "Secure serving", AddFlags: o.SecureServing.AddFlags},
		stockflags.Set{Name: "Authentication", AddFlags: o.Authentication.AddFlags},
		stockflags.Set{Name: "Audit", AddFlags: o.Audit.AddFlags},
		stockflags.Set{Name: "Generic", AddFlags: o.ServerRun.AddUniversalFlags},
		stockflags.Set{Name: "Debug", AddFlags: o.Features.AddFlags},
		stockflags.Set{Name: "Metrics", AddFlags: o.Metrics.AddFlags},
		stockflags.Set{Name: "Logs", AddFlags: func(fs *pflag.FlagSet) { logsapi.AddFlags(o.Logs, fs) }},
	)
}
