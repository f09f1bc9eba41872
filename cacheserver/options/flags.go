package options

import (
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"github.com/atoll-dev/atoll/internal/stockflags"
)

// upstreamFlags are the accepted flags of stock option sets, by exact name or by prefix ("etcd-*"). All others stay
// unknown, so that no flag is accepted without effect.
var upstreamFlags = []string{
	"audit-log-*", "audit-webhook-*", "audit-policy-file", "client-ca-file",
	"etcd-servers", "etcd-prefix", "etcd-keyfile", "etcd-certfile", "etcd-cafile", "etcd-compaction-interval", "etcd-healthcheck-timeout",
	"etcd-readycheck-timeout", "encryption-provider-config*",
	"bind-address", "secure-port", "cert-dir", "tls-*", "http2-max-streams-per-connection", "disable-http2-serving",
	"permit-address-sharing", "permit-port-sharing",
	"cors-allowed-origins", "goaway-chance", "livez-grace-period", "max-requests-inflight", "max-mutating-requests-inflight", "min-request-timeout",
	"request-timeout", "shutdown-delay-duration", "shutdown-send-retry-after", "shutdown-watch-termination-grace-period",
	"strict-transport-security-directives",
	"v", "vmodule", "logging-format", "log-flush-frequency", "profiling", "contention-profiling", "debug-socket-path",
}

// AddFlags binds the options to named flag sets. Help prints them by set.
func (o *Options) AddFlags(fss *cliflag.NamedFlagSets) {
	fs := fss.FlagSet("Cache server")
	fs.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory, "Directory of generated files: a serving certificate, and the embedded etcd. Empty: generate none.")
	fs.StringSliceVar(&o.AlwaysAllowPaths, "authorization-always-allow-paths", o.AlwaysAllowPaths, "Paths that need no authorization. Add /metrics for scraping without a certificate.")
	fs.DurationVar(&o.ShardTimeout, "shard-silence", o.ShardTimeout, "How long after its last report the objects of a shard are deleted, once its Shard object is deleted.")
	fs.Int64Var(&o.Quota.Objects, "max-objects-per-shard", o.Quota.Objects, "Maximum number of objects of one shard in this cache, and of cached resources of its users. 0: no limit. Set --shard-max-objects-of-another of shards to the same value.")
	fs.Int64Var(&o.Quota.Bytes, "max-bytes-per-shard", o.Quota.Bytes, "Maximum size in etcd of the objects of one shard, and of cached resources of its users, in bytes. Revisions that were replaced in the last ten minutes have a limit of the same size. 0: no limit.")
	o.EtcdOwner.AddFlags(fs, `"`+defaultOwner+`", followed by --cache-name if that is set`)
	fs.DurationVar(&o.SyntheticDelay, "synthetic-delay", o.SyntheticDelay, "Delay of every request, for tests.")

	fs = fss.FlagSet("Hierarchy")
	fs.StringVar(&o.Name, "cache-name", o.Name, "Name of this cache, unique in the installation. Required with --parent-kubeconfig.")
	fs.StringVar(&o.ParentKubeconfig, "parent-kubeconfig", o.ParentKubeconfig, "Credentials for the parent cache, to which objects with global reach are copied, and from which those of other regions are copied. Empty: no parent.")

	o.EmbeddedEtcd.AddFlags(fss.FlagSet("Embedded etcd"))

	stockflags.Add(fss, upstreamFlags, nil,
		stockflags.Set{Name: "Etcd", AddFlags: o.Etcd.AddFlags},
		stockflags.Set{Name: "Secure serving", AddFlags: o.SecureServing.AddFlags},
		stockflags.Set{Name: "Authentication", AddFlags: o.ClientCert.AddFlags},
		stockflags.Set{Name: "Audit", AddFlags: o.Audit.AddFlags},
		stockflags.Set{Name: "Generic", AddFlags: o.ServerRun.AddUniversalFlags},
		stockflags.Set{Name: "Debug", AddFlags: o.Features.AddFlags},
		stockflags.Set{Name: "Logs", AddFlags: func(fs *pflag.FlagSet) { logsapi.AddFlags(o.Logs, fs) }},
	)
}
