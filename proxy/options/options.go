// Package options holds the command line of the front proxy: what the flags are, what they default to, and what
// must not stand together. It opens no file and no connection.
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

	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/profiles"
)

// defaultIssuer is the issuer of service account tokens where nothing else is configured, as on a shard.
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
	RootDirectory    string

	// SharedIndex is what shards write and this proxy reads, where there is one.
	SharedIndex *sharedindex.Options

	// Shards and ShardSelector choose the shards that the proxy leads to; without any it leads to all.
	Shards        []string
	ShardSelector string

	CORSAllowedOrigins []string
	ProfilerAddress    string
	FeatureGates       map[string]bool
	Logs               *logsapi.LoggingConfiguration

	// ShutdownTimeout is how long requests may take to end after the signal to stop. It is no flag.
	ShutdownTimeout time.Duration
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
		ShutdownTimeout: 60 * time.Second,
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
	for name, why := range map[string]string{
		"service-account-jwks-uri":                "the proxy publishes no keys",
		"service-account-max-token-expiration":    "the proxy issues no tokens",
		"service-account-extend-token-expiration": "the proxy issues no tokens",
	} {
		if err := fs.MarkDeprecated(name, "it has no effect here: "+why); err != nil {
			panic(err) // the flag is gone from the library: notice it when this is compiled against a new one
		}
	}
	fs.StringSliceVar(&o.PassOnGroups, "authentication-pass-on-groups", o.PassOnGroups,
		"Groups that are passed on to shards; a trailing '*' matches any rest. Empty passes all on.")
	fs.StringSliceVar(&o.DropGroups, "authentication-drop-groups", o.DropGroups,
		"Groups that are never passed on to shards; a trailing '*' matches any rest. Wins over --authentication-pass-on-groups.")

	fs.StringVar(&o.MappingFile, "mapping-file", o.MappingFile,
		"YAML list of {path, backend, backend_server_ca, proxy_client_cert, proxy_client_key}. The entry with path /clusters/ leads to the shards. Required.")
	fs.StringVar(&o.RootKubeconfig, "root-kubeconfig", o.RootKubeconfig,
		"Kubeconfig of the root shard: Shard objects are read there, unless there is a shared index, and access to /metrics is checked there.")
	fs.StringVar(&o.ShardsKubeconfig, "shards-kubeconfig", o.ShardsKubeconfig,
		"Kubeconfig whose credentials are good on all shards (group system:masters). Its server is not used. Required, but with a shared index and --service-account-lookup=false.")
	o.SharedIndex.AddFlags(fs, "This proxy reads it instead of watching every shard, and starts without them.")
	fs.StringSliceVar(&o.Shards, "shards", o.Shards,
		"Names of the shards that this proxy leads to. Workspaces on others look as if they did not exist. Empty, and without --shard-selector: all.")
	fs.StringVar(&o.ShardSelector, "shard-selector", o.ShardSelector,
		"Label selector over Shard objects: this proxy leads to the shards that match, and to those of --shards.")
	fs.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory,
		"Directory for the generated serving certificate apiserver.crt and its key, where --tls-cert-file is not given.")

	fs.StringSliceVar(&o.CORSAllowedOrigins, "cors-allowed-origins", o.CORSAllowedOrigins,
		"Origins allowed for CORS: regular expressions that must match the whole host, starting with ^ or // and ending with $ or : followed by ports.")
	fs.StringVar(&o.ProfilerAddress, "profiler-address", o.ProfilerAddress,
		"Loopback address such as localhost:6060 at which pprof listens. Empty for none.")
	fs.Var(cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates",
		"Feature gates as key=true|false pairs. Gates of kcp that concern shards alone are accepted and change nothing here.")
	logsapi.AddFlags(o.Logs, fs)
}

// CompletedOptions are options whose defaults are filled in and which were found free of contradictions.
type CompletedOptions struct{ *completed }

type completed struct{ Options }

// Complete fills in defaults and validates. All errors are returned together.
func (o Options) Complete() (CompletedOptions, error) {
	if o.SecureServing.ServerCert.CertDirectory == "" {
		o.SecureServing.ServerCert.CertDirectory = o.RootDirectory
	}
	o.PassOnGroups = identity.ParseGroups(o.PassOnGroups)
	o.DropGroups = identity.ParseGroups(o.DropGroups)

	authentication := *o.Authentication
	if accounts := authentication.ServiceAccounts; accounts != nil {
		copied := *accounts
		// The first value given replaces the default; keep one if the user emptied the list.
		if len(copied.Issuers) == 0 {
			copied.Issuers = []string{defaultIssuer}
		}
		authentication.ServiceAccounts = &copied
		if len(copied.KeyFiles) == 0 {
			authentication.ServiceAccounts = nil // no key to verify with: such tokens are the shards' business
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
		errs = append(errs, errors.New("--mapping-file: got nothing, expected the file that says which path leads where"))
	}
	if o.ShardsKubeconfig == "" && !o.SharedIndex.Enabled() {
		errs = append(errs, errors.New("--shards-kubeconfig: got nothing, expected a kubeconfig with credentials for all shards, or a shared index"))
	}
	errs = append(errs, o.SharedIndex.Validate()...)
	if _, err := labels.Parse(o.ShardSelector); err != nil {
		errs = append(errs, fmt.Errorf("--shard-selector: got %q: %w", o.ShardSelector, err))
	}
	for _, origin := range o.CORSAllowedOrigins {
		if _, err := regexp.Compile(origin); err != nil {
			errs = append(errs, fmt.Errorf("--cors-allowed-origins: got %q, expected a regular expression: %w", origin, err))
		}
	}
	if o.ProfilerAddress != "" {
		errs = append(errs, profiles.Validate(o.ProfilerAddress))
	}
	errs = append(errs, o.validateGates()...)
	return utilerrors.NewAggregate(errs)
}

// Feature gates of kcp that change what this proxy does.
const (
	// GateWorkspaceAuthentication lets a workspace type bring token issuers of its own.
	GateWorkspaceAuthentication = "WorkspaceAuthentication"
)

// kcpGates are the gates of kcp. Those that change nothing here concern shards alone; mounts are routed as soon as a
// shard has any.
var kcpGates = []string{
	"CacheAPIs", "EnableDeprecatedAPIExportVirtualWorkspacesUrls", "LogicalClusterMigration", "StorageVersionAPI",
	GateWorkspaceAuthentication, "WorkspaceMounts",
}

// FeatureEnabled tells whether a feature gate of kcp is on.
func (o Options) FeatureEnabled(name string) bool { return o.FeatureGates[name] }

func (o Options) validateGates() []error {
	if err := utilfeature.DefaultMutableFeatureGate.DeepCopy().SetFromMap(o.UpstreamGates()); err != nil {
		return []error{fmt.Errorf("--feature-gates: %w", err)}
	}
	return nil
}

// UpstreamGates returns the gates that the Kubernetes libraries know.
func (o Options) UpstreamGates() map[string]bool { return UpstreamGates(o.FeatureGates) }

// UpstreamGates returns those of the gates that are not kcp's own.
func UpstreamGates(gates map[string]bool) map[string]bool {
	upstream := map[string]bool{}
	for name, on := range gates {
		if !slices.Contains(kcpGates, name) {
			upstream[name] = on
		}
	}
	return upstream
}
