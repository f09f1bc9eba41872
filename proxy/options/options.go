// Package options has the command line of the front proxy: flags, their defaults and their validation. It opens no
// files and no connections.
package options

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/atoll-dev/atoll/internal/profiling"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/internal/writetimeout"
	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/inflight"
)

// defaultIssuer is the default issuer of service account tokens, as on a shard.
const defaultIssuer = "https://kcp.default.svc"

// Options are the flags as the user set them.
type Options struct {
	SecureServing  *genericoptions.SecureServingOptions
	Authentication *kubeoptions.BuiltInAuthenticationOptions
	PassOnGroups   []string
	DropGroups     []string

	MappingFile      string
	RootKubeconfig   string
	ShardsKubeconfig string
	// ShardPeerKubeconfigs name the servers that Shard objects are read from; empty for the root shard.
	ShardPeerKubeconfigs []string
	RootDirectory        string

	// SharedIndex is the connection to the index that shards write, if enabled.
	SharedIndex *sharedindex.Options

	// Shards and ShardSelector select the shards that the proxy serves; without either it serves all.
	Shards        []string
	ShardSelector string

	// InFlight limits the concurrent requests of each user.
	InFlight inflight.Limits

	CORSAllowedOrigins []string
	ProfilerAddress    string
	FeatureGates       map[string]bool
	Logs               *logsapi.LoggingConfiguration

	// ShutdownTimeout bounds the time that requests have to end on shutdown. It has no flag.
	ShutdownTimeout time.Duration
	// WriteTimeouts end responses that clients do not read. They have no flags.
	WriteTimeouts writetimeout.Timeouts
}

// New returns the defaults.
func New() *Options {
	o := &Options{
		SecureServing: genericoptions.NewSecureServingOptions(),
		Authentication: kubeoptions.NewBuiltInAuthenticationOptions().
			WithClientCert().WithOIDC().WithRequestHeader().WithServiceAccounts().WithTokenFile().WithWebHook(),
		DropGroups:      identity.DefaultDropGroups(),
		RootDirectory:   ".kcp",
		SharedIndex:     sharedindex.NewOptions(),
		FeatureGates:    map[string]bool{},
		Logs:            logsapi.NewLoggingConfiguration(),
		InFlight:        inflight.DefaultLimits(),
		ShutdownTimeout: 60 * time.Second,
		WriteTimeouts:   writetimeout.Default(),
	}
	o.SecureServing.Required = true
	o.SecureServing.ServerCert.CertDirectory = "" // follows --root-directory
	o.Authentication.ServiceAccounts.Issuers = []string{defaultIssuer}
	o.Logs.Verbosity = 2
	return o
}

// AddFlags binds the options to the flag set.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.SecureServing.AddFlags(fs)
	o.Authentication.AddFlags(fs)
	for name, reason := range map[string]string{
		"service-account-jwks-uri":                "the proxy publishes no keys",
		"service-account-max-token-expiration":    "the proxy issues no tokens",
		"service-account-extend-token-expiration": "the proxy issues no tokens",
	} {
		if err := fs.MarkDeprecated(name, "it has no effect here: "+reason); err != nil {
			panic(err) // the library does not have the flag
		}
	}
	fs.StringSliceVar(&o.PassOnGroups, "authentication-pass-on-groups", o.PassOnGroups,
		"Groups that are sent to shards; a trailing '*' matches any suffix. Empty sends all.")
	fs.StringSliceVar(&o.DropGroups, "authentication-drop-groups", o.DropGroups,
		"Groups that are never sent to shards; a trailing '*' matches any suffix. Takes precedence over --authentication-pass-on-groups.")

	fs.StringVar(&o.MappingFile, "mapping-file", o.MappingFile,
		"YAML list of {path, backend, backend_server_ca, proxy_client_cert, proxy_client_key}. The entry with path /clusters/ is that of the shards. Required.")
	fs.StringVar(&o.RootKubeconfig, "root-kubeconfig", o.RootKubeconfig,
		"Kubeconfig of the root shard: Shard objects are read there, unless there is a shared index, and access to /metrics is checked there.")
	fs.StringVar(&o.ShardsKubeconfig, "shards-kubeconfig", o.ShardsKubeconfig,
		"Kubeconfig with credentials for all shards (group system:masters). Its server is not used. Required, except with a shared index and --service-account-lookup=false.")
	fs.StringSliceVar(&o.ShardPeerKubeconfigs, "shard-peer-kubeconfig", o.ShardPeerKubeconfigs,
		"Kubeconfig of shards, repeatable: Shard objects are read at /services/admin of any server in these files, and of any shard that they name, instead of the root shard. The user of the first file's current context must be in system:kcp:admin or system:masters on all of them.")
	o.SharedIndex.AddFlags(fs, "This proxy reads it instead of watching every shard, and starts without them.")
	fs.StringSliceVar(&o.Shards, "shards", o.Shards,
		"Names of the shards that this proxy serves. Workspaces on others are not found. Empty, and without --shard-selector: all.")
	fs.StringVar(&o.ShardSelector, "shard-selector", o.ShardSelector,
		"Label selector for Shard objects: this proxy serves the shards that match, and those of --shards.")
	fs.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory,
		"Directory for the generated serving certificate apiserver.crt and its key, if --tls-cert-file is not given.")

	o.InFlight.AddFlags(fs)

	fs.StringSliceVar(&o.CORSAllowedOrigins, "cors-allowed-origins", o.CORSAllowedOrigins,
		"Origins allowed for CORS: regular expressions that must match the whole host, starting with ^ or // and ending with $ or : followed by ports.")
	fs.StringVar(&o.ProfilerAddress, "profiler-address", o.ProfilerAddress,
		"Loopback address such as localhost:6060 at which pprof listens. Empty for none.")
	fs.Var(cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates",
		"Feature gates as key=true|false pairs. Gates of kcp that concern only shards are accepted without effect.")
	logsapi.AddFlags(o.Logs, fs)
}

// CompletedOptions are validated options with defaults.
type CompletedOptions struct{ *completed }

type completed struct{ Options }

// Complete sets defaults and validates. It returns all errors.
func (o Options) Complete() (CompletedOptions, error) {
	if o.SecureServing.ServerCert.CertDirectory == "" {
		o.SecureServing.ServerCert.CertDirectory = o.RootDirectory
	}
	o.PassOnGroups = identity.ParseGroups(o.PassOnGroups)
	o.DropGroups = identity.ParseGroups(o.DropGroups)

	authentication := *o.Authentication
	if accounts := authentication.ServiceAccounts; accounts != nil {
		copied := *accounts
		// The first value of the flag replaces the default; an empty list restores it.
		if len(copied.Issuers) == 0 {
			copied.Issuers = []string{defaultIssuer}
		}
		authentication.ServiceAccounts = &copied
		if len(copied.KeyFiles) == 0 {
			authentication.ServiceAccounts = nil // without keys, shards verify the tokens
		}
	}
	o.Authentication = &authentication

	if err := o.validate(); err != nil {
		return CompletedOptions{}, err
	}
	return CompletedOptions{&completed{o}}, nil
}

func (o Options) validate() error {
	var errs []error
	errs = append(errs, o.SecureServing.Validate()...)
	errs = append(errs, o.Authentication.Validate()...)
	serving := o.SecureServing.ServerCert.CertKey
	if (serving.CertFile == "") != (serving.KeyFile == "") {
		errs = append(errs, fmt.Errorf("--tls-cert-file and --tls-private-key-file: got one of them (%q, %q), expected both or neither", serving.CertFile, serving.KeyFile))
	}
	if serving.CertFile == "" && o.SecureServing.ServerCert.CertDirectory == "" {
		errs = append(errs, errors.New("--root-directory: got nothing, expected a directory for the generated certificate, or --tls-cert-file and --tls-private-key-file"))
	}
	if o.MappingFile == "" {
		errs = append(errs, errors.New("--mapping-file: got nothing, expected the file that maps paths to backends"))
	}
	if o.ShardsKubeconfig == "" && !o.SharedIndex.Enabled() {
		errs = append(errs, errors.New("--shards-kubeconfig: got nothing, expected a kubeconfig with credentials for all shards, or a shared index"))
	}
	errs = append(errs, o.SharedIndex.Validate()...)
	if len(o.ShardPeerKubeconfigs) > 0 && o.SharedIndex.Enabled() {
		errs = append(errs, errors.New("--shard-peer-kubeconfig: got files and a shared index, expected one of them: the index has the shards"))
	}
	if _, err := labels.Parse(o.ShardSelector); err != nil {
		errs = append(errs, fmt.Errorf("--shard-selector: got %q: %w", o.ShardSelector, err))
	}
	for _, origin := range o.CORSAllowedOrigins {
		if _, err := regexp.Compile(origin); err != nil {
			errs = append(errs, fmt.Errorf("--cors-allowed-origins: got %q, expected a regular expression: %w", origin, err))
		}
	}
	errs = append(errs, o.InFlight.Validate()...)
	if o.ProfilerAddress != "" {
		errs = append(errs, profiling.Validate(o.ProfilerAddress))
	}
	errs = append(errs, o.validateGates()...)
	return utilerrors.NewAggregate(errs)
}

// Feature gates of kcp with an effect here.
const (
	// GateWorkspaceAuthentication lets workspace types name token issuers.
	GateWorkspaceAuthentication = "WorkspaceAuthentication"
)

// kcpGates are the gates of kcp. Those without an effect here concern only shards; mounts are routed if a shard has
// any.
var kcpGates = []string{
	"CacheAPIs", "EnableDeprecatedAPIExportVirtualWorkspacesUrls", "LogicalClusterMigration", "StorageVersionAPI",
	GateWorkspaceAuthentication, "WorkspaceMounts",
}

// FeatureEnabled reports whether a feature gate of kcp is on.
func (o Options) FeatureEnabled(name string) bool { return o.FeatureGates[name] }

func (o Options) validateGates() []error {
	if err := utilfeature.DefaultMutableFeatureGate.DeepCopy().SetFromMap(o.UpstreamGates()); err != nil {
		return []error{fmt.Errorf("--feature-gates: %w", err)}
	}
	return nil
}

// UpstreamGates returns the feature gates of the Kubernetes libraries.
func (o Options) UpstreamGates() map[string]bool { return UpstreamGates(o.FeatureGates) }

// UpstreamGates returns the gates that are not those of kcp.
func UpstreamGates(gates map[string]bool) map[string]bool {
	upstream := map[string]bool{}
	for name, on := range gates {
		if !slices.Contains(kcpGates, name) {
			upstream[name] = on
		}
	}
	return upstream
}
