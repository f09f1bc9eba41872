package virtualworkspaces

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/atoll-dev/atoll/internal/profiling"
	"github.com/atoll-dev/atoll/internal/writetimeout"
	"github.com/atoll-dev/atoll/proxy/inflight"
	"github.com/atoll-dev/atoll/proxy/options"
)

// Options are the flags as the user set them.
type Options struct {
	// Kubeconfig has credentials in group system:masters for the shard. Context is a context in it; empty is the
	// current one.
	Kubeconfig, Context string

	SecureServing *genericoptions.SecureServingOptions
	ClientCert    *genericoptions.ClientCertAuthenticationOptions
	RequestHeader *genericoptions.RequestHeaderAuthenticationOptions
	Audit         *genericoptions.AuditOptions

	ProfilerAddress string
	FeatureGates    map[string]bool
	Logs            *logsapi.LoggingConfiguration

	// InFlight limits the concurrent requests of each user.
	InFlight inflight.Limits

	// ShutdownTimeout bounds the time that requests have to end on shutdown. It has no flag.
	ShutdownTimeout time.Duration
	// WriteTimeouts end responses that clients do not read. They have no flags.
	WriteTimeouts writetimeout.Timeouts

	// unused has the values of flags without effect.
	unused struct {
		cacheKubeconfig, externalKubeconfig, authenticationKubeconfig, externalURL string
		skipLookup, tolerateFailure                                                bool
		tokenTTL                                                                   time.Duration
	}
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	o := &Options{
		SecureServing: genericoptions.NewSecureServingOptions(),
		ClientCert:    &genericoptions.ClientCertAuthenticationOptions{},
		RequestHeader: &genericoptions.RequestHeaderAuthenticationOptions{
			UsernameHeaders: []string{"x-remote-user"}, GroupHeaders: []string{"x-remote-group"}, ExtraHeaderPrefixes: []string{"x-remote-extra-"},
		},
		Audit:           genericoptions.NewAuditOptions(),
		FeatureGates:    map[string]bool{},
		Logs:            logsapi.NewLoggingConfiguration(),
		InFlight:        inflight.DefaultLimits(),
		ShutdownTimeout: 60 * time.Second,
		WriteTimeouts:   writetimeout.Default(),
	}
	o.SecureServing.Required = true
	o.SecureServing.BindPort = 6444
	o.SecureServing.ServerCert.CertDirectory = ".kcp"
	o.SecureServing.ServerCert.PairName = "apiserver"
	o.Logs.Verbosity = 2
	return o
}

// AddFlags binds the options to the flag set.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig of the shard whose virtual workspaces are served, with credentials in group system:masters. A path in its server URL is ignored. Required.")
	fs.StringVar(&o.Context, "context", o.Context, "Context in --kubeconfig. Empty for its current one.")
	o.SecureServing.AddFlags(fs)
	o.ClientCert.AddFlags(fs)
	o.RequestHeader.AddFlags(fs)
	o.Audit.AddFlags(fs)
	o.InFlight.AddFlags(fs)
	fs.StringVar(&o.ProfilerAddress, "profiler-address", o.ProfilerAddress, "Loopback address such as localhost:6060 at which pprof listens. Empty for none.")
	fs.Var(cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates", "Feature gates as key=true|false pairs. Gates of kcp are those of the shard: they are accepted and change nothing here.")
	logsapi.AddFlags(o.Logs, fs)
	o.addUnusedFlags(fs)
}

// addUnusedFlags adds flags of kcp's server whose function the shard has here.
func (o *Options) addUnusedFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.unused.cacheKubeconfig, "cache-kubeconfig", "", "Kubeconfig of the cache server.")
	fs.StringVar(&o.unused.externalKubeconfig, "external-logical-cluster-admin-kubeconfig", "", "Kubeconfig of the front proxy for requests to other shards.")
	fs.StringVar(&o.unused.authenticationKubeconfig, "authentication-kubeconfig", "", "Kubeconfig of a server that reviews tokens.")
	fs.BoolVar(&o.unused.skipLookup, "authentication-skip-lookup", false, "Do not look up missing authentication configuration.")
	fs.BoolVar(&o.unused.tolerateFailure, "authentication-tolerate-lookup-failure", false, "Go on when authentication configuration cannot be looked up.")
	fs.DurationVar(&o.unused.tokenTTL, "authentication-token-webhook-cache-ttl", 0, "How long token reviews are cached.")
	fs.StringVar(&o.unused.externalURL, "shard-external-url", "", "URL of the shard for clients.")
	for name, reason := range map[string]string{
		"cache-kubeconfig":                          "the shard reads the cache",
		"external-logical-cluster-admin-kubeconfig": "the shard sends requests to other shards",
		"authentication-kubeconfig":                 "the shard verifies tokens",
		"authentication-skip-lookup":                "there is no lookup",
		"authentication-tolerate-lookup-failure":    "there is no lookup",
		"authentication-token-webhook-cache-ttl":    "the shard verifies tokens",
		"shard-external-url":                        "the shard has this URL",
	} {
		if err := fs.MarkDeprecated(name, "it has no effect here: "+reason); err != nil {
			panic(err) // the flag was added above
		}
	}
}

// Validate returns all errors.
func (o *Options) Validate() error {
	var errs []error
	if o.Kubeconfig == "" {
		errs = append(errs, errors.New("--kubeconfig: got nothing, expected a kubeconfig of the shard"))
	}
	errs = append(errs, o.SecureServing.Validate()...)
	errs = append(errs, o.RequestHeader.Validate()...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.InFlight.Validate()...)
	if o.ProfilerAddress != "" {
		errs = append(errs, profiling.Validate(o.ProfilerAddress))
	}
	if err := utilfeature.DefaultMutableFeatureGate.DeepCopy().SetFromMap(options.UpstreamGates(o.FeatureGates)); err != nil {
		errs = append(errs, fmt.Errorf("--feature-gates: %w", err))
	}
	return utilerrors.NewAggregate(errs)
}

// UpstreamGates returns the feature gates of the Kubernetes libraries.
func (o *Options) UpstreamGates() map[string]bool { return options.UpstreamGates(o.FeatureGates) }
