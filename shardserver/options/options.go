// Package options parses, validates and completes the configuration of a shard from its command line. It starts nothing
// and opens no port except a listener for a free port, if requested; it creates files only below the root directory.
package options

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcdowner"
	"github.com/atoll-dev/atoll/internal/servingcert"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/internal/writetimeout"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/backends"
)

// Defaults that clients of kcp rely on.
const (
	DefaultRootDirectory = ".kcp"
	DefaultSecurePort    = 6443
	DefaultShardName     = "root"
	DefaultIssuer        = "https://kcp.default.svc"
)

// Options are the values of a shard's flags. Use New for defaults, AddFlags to bind, Complete to validate.
type Options struct {
	RootDirectory string

	ServerRun      *genericoptions.ServerRunOptions
	Etcd           *genericoptions.EtcdOptions
	SecureServing  *genericoptions.SecureServingOptions
	Authentication *kubeoptions.BuiltInAuthenticationOptions
	Audit          *genericoptions.AuditOptions
	Features       *genericoptions.FeatureOptions
	Metrics        *metrics.Options
	Logs           *logs.Options

	EmbeddedEtcd embeddedetcd.Config
	// EtcdOwner names the owner of the keys in etcd. Its default is the name of the shard.
	EtcdOwner     etcdowner.Options
	Shard         ShardOptions
	Controllers   ControllerOptions
	Authorization AuthorizationOptions
	AdminAuth     AdminAuthOptions
	Home          HomeOptions
	// RunVirtualWorkspaces serves virtual workspaces below /services/.
	RunVirtualWorkspaces bool
	// SharedIndex configures the shared index from which front proxies read the content of this shard. It may be nil.
	SharedIndex *sharedindex.Options

	Objects ObjectOptions

	Admission AdmissionOptions

	// UsageInterval is the time between two flushes of the usage of logical clusters.
	UsageInterval time.Duration
	// AuditSinksFile is a file with the sinks of audit events of selected workspaces, or empty.
	AuditSinksFile string
	// WorkspaceAuditBytes bounds the memory of the audit events that workspaces can read; 0 keeps none.
	WorkspaceAuditBytes int64
	// EventTTL is how long events are kept.
	EventTTL time.Duration
	// BatteriesIncluded is the raw value of --batteries-included.
	BatteriesIncluded []string
	// FeatureGates is the raw value of --feature-gates.
	FeatureGates []string
	// RootCAFile is published as kube-root-ca.crt. If empty, the chain of the serving certificate is.
	RootCAFile string
	// ServiceAccountPrivateKeyFile is the key that signs service account tokens.
	ServiceAccountPrivateKeyFile string
	// ServiceAccountKeyGenerations are the generations of the keys of --service-account-key-file, in their order. Empty: all are of the first.
	ServiceAccountKeyGenerations []int32
	// RemoteServiceAccountKeyFiles have the public keys that sign service account tokens on other shards.
	RemoteServiceAccountKeyFiles []string
	// ProfilerAddress is the address of a separate plain listener for pprof; empty disables it.
	ProfilerAddress string
	// WriteTimeouts end responses that clients do not read. They have no flags.
	WriteTimeouts writetimeout.Timeouts
	// BindFreePort binds to a free port; it requires --secure-port=0.
	BindFreePort bool

	unused unusedOptions
}

// ShardOptions configure the identity of this shard and its connections to others.
type ShardOptions struct {
	Name                string
	BaseURL             string
	ExternalURL         string
	VirtualWorkspaceURL string
	// Labels of the Shard object, which the shard sets at its start.
	Labels         map[string]string
	ClientCertFile string
	ClientKeyFile  string
	// VirtualWorkspaceCA is the file with the CA of the virtual workspaces of other shards, from which logical clusters move to
	// this one.
	VirtualWorkspaceCA string
	// Backends are the files of the connection to the servers of custom subresources; all or none are set.
	Backends backends.Files
	// RootIdentitiesFile contains the initial identities of the root exports.
	RootIdentitiesFile string
	// RootKubeconfig is the kubeconfig with which other shards connect to the root shard, CacheKubeconfig the one for
	// the cache server. A root shard without CacheKubeconfig runs a cache server itself.
	RootKubeconfig, CacheKubeconfig string
	// MaxLogicalClusters and MaxObjects are the capacity of the shard: when it is reached, new workspaces are scheduled
	// to other shards. 0 is unlimited.
	MaxLogicalClusters, MaxObjects int64
	// MaxObjectsPerRemoteShard is the quota for objects that one other shard publishes. 0 is unlimited.
	MaxObjectsPerRemoteShard int64

	// LogicalClusterAdminKubeconfig is not used.
	LogicalClusterAdminKubeconfig string
	// ExternalLogicalClusterAdminKubeconfig has the address and the CA of the front proxy. Its credentials are not used.
	ExternalLogicalClusterAdminKubeconfig string
}

// ExternalAddress returns the "host:port" of the external URL.
func (o *ShardOptions) ExternalAddress() string {
	u, err := url.Parse(o.ExternalURL)
	if err != nil || u.Host == "" { // complete options have a URL
		return ""
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
}

// ControllerOptions configure the controllers of the shard.
type ControllerOptions struct {
	Enable                  bool
	EnableLeaderElection    bool
	LeaderElectionNamespace string
	LeaderElectionName      string
}

// AutomaticByteLimit is the value of ObjectOptions.DefaultByteLimit that depends on the quota of etcd.
const AutomaticByteLimit = -1

// ObjectOptions configure the limits of the number and size of objects per logical cluster.
type ObjectOptions struct {
	// DefaultLimit applies to logical clusters without a limit of their own; 0 is unlimited.
	DefaultLimit int64
	// DefaultByteLimit applies to logical clusters without a byte limit of their own; 0 is unlimited.
	DefaultByteLimit int64
	// ScanInterval is the interval of counting all keys.
	ScanInterval time.Duration
}

// AdmissionOptions configure the admission plug-ins.
type AdmissionOptions struct {
	// Enable and Disable are names of plug-ins, as in package admission.
	Enable, Disable []string
	// ConfigFile is a file of kind AdmissionConfiguration, or empty.
	ConfigFile string
}

// AuthorizationOptions configure the authorizers before and beside RBAC.
type AuthorizationOptions struct {
	AlwaysAllowPaths []string
	// Order lists the authorizers in evaluation order.
	Order []string
	// WebhookConfigFile is the kubeconfig of the webhook; empty disables it.
	WebhookConfigFile                            string
	WebhookVersion                               string
	WebhookAuthorizedTTL, WebhookUnauthorizedTTL time.Duration
}

// HomeOptions configure home workspaces.
type HomeOptions struct {
	Enabled bool
	// CreatorGroups are the groups whose members may have a home workspace.
	CreatorGroups []string
}

// AdminAuthOptions configure the admin kubeconfig and its tokens.
type AdminAuthOptions struct {
	KubeconfigPath string
	TokenHashPath  string
}

// minWorkspaceAuditBytes leaves each workspace some events of the largest size.
const minWorkspaceAuditBytes = 1 << 20

// New returns the options with their defaults. The root directory is a parameter because other defaults depend on it.
func New(rootDirectory string) *Options {
	o := &Options{
		RootDirectory:  rootDirectory,
		ServerRun:      genericoptions.NewServerRunOptions(),
		Etcd:           genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(kubeoptions.DefaultEtcdPathPrefix, nil)),
		SecureServing:  kubeoptions.NewSecureServingOptions().SecureServingOptions,
		Authentication: kubeoptions.NewBuiltInAuthenticationOptions().WithAll(),
		Audit:          genericoptions.NewAuditOptions(),
		Features:       genericoptions.NewFeatureOptions(),
		Metrics:        metrics.NewOptions(),
		Logs:           logs.NewOptions(),
		EmbeddedEtcd:   embeddedetcd.NewConfig(),
		Shard:          ShardOptions{Name: DefaultShardName, MaxObjectsPerRemoteShard: cacheclient.DefaultMaxObjects},
		Controllers: ControllerOptions{
			Enable:                  true,
			LeaderElectionNamespace: "kube-system",
			LeaderElectionName:      "kcp-controllers",
		},
		Authorization: AuthorizationOptions{
			AlwaysAllowPaths:       []string{"/healthz", "/readyz", "/livez"},
			Order:                  authorization.DefaultOrder(),
			WebhookVersion:         "v1beta1",
			WebhookAuthorizedTTL:   5 * time.Minute,
			WebhookUnauthorizedTTL: 30 * time.Second,
		},
		RunVirtualWorkspaces: true,
		SharedIndex:          sharedindex.NewOptions(),
		Home:                 HomeOptions{Enabled: true, CreatorGroups: []string{user.AllAuthenticated}},
		Objects:              ObjectOptions{DefaultByteLimit: AutomaticByteLimit, ScanInterval: time.Minute},
		UsageInterval:        time.Minute,
		WorkspaceAuditBytes:  32 << 20,
		EventTTL:             time.Hour,
		BatteriesIncluded:    DefaultBatteries(),
		WriteTimeouts:        writetimeout.Default(),
	}
	o.Etcd.StorageConfig.Transport.ServerList = []string{embeddedetcd.InProcess}
	o.Etcd.DefaultStorageMediaType = "application/vnd.kubernetes.protobuf"
	// Deleting a collection is limited to a minute, like any request. With one worker, that is too short for thousands
	// of objects on a busy shard.
	o.Etcd.DeleteCollectionWorkers = 4
	// Without a grace period, open watches delay the shutdown by up to the request timeout.
	o.ServerRun.ShutdownWatchTerminationGracePeriod = 2 * time.Second
	o.SecureServing.BindPort = DefaultSecurePort
	o.SecureServing.BindAddress = net.IPv4zero
	o.SecureServing.ServerCert.CertDirectory = rootDirectory
	o.SecureServing.ServerCert.PairName = "apiserver"
	o.Authentication.ServiceAccounts.Issuers = []string{DefaultIssuer}
	o.Features.EnablePriorityAndFairness = false
	if rootDirectory != "" {
		o.AdminAuth.KubeconfigPath = filepath.Join(rootDirectory, "admin.kubeconfig")
		o.AdminAuth.TokenHashPath = filepath.Join(rootDirectory, ".admin-token-store")
	}
	return o
}

// completed is the result of Complete, which alone can create it.
type completed struct {
	*Options
	Batteries  Batteries
	Embedded   bool
	ExternalIP string
	// features are the enabled feature gates; see FeatureEnabled.
	features map[string]bool
}

// Completed options are validated and have all defaults.
type Completed struct{ *completed }

// Complete sets defaults, creates the root directory and generated keys, and validates everything. Its errors contain
// the flag, its value and the expected value.
func (o *Options) Complete() (Completed, error) {
	batteries, err := ParseBatteries(o.BatteriesIncluded)
	if err != nil {
		return Completed{}, err
	}
	features, err := ParseFeatureGates(o.FeatureGates)
	if err != nil {
		return Completed{}, err
	}
	if err := setUpstreamGates(features); err != nil {
		return Completed{}, err
	}
	c := &completed{Options: o, Batteries: batteries, features: features}
	for _, step := range []func() error{
		c.completeRootDirectory, c.completeEtcd, c.completeServing, c.completeURLs, c.checkFiles, c.completePeers, c.completeServiceAccounts, c.validate,
	} {
		if err := step(); err != nil {
			return Completed{}, err
		}
	}
	return Completed{c}, nil
}

func (c *completed) completeRootDirectory() error {
	if c.RootDirectory == "" {
		return nil
	}
	absolute, err := filepath.Abs(c.RootDirectory)
	if err != nil {
		return fmt.Errorf("--root-directory %q: %w", c.RootDirectory, err)
	}
	if err := os.MkdirAll(absolute, 0o755); err != nil {
		return fmt.Errorf("--root-directory: %w", err)
	}
	if err := os.Chmod(absolute, 0o700); err != nil {
		return fmt.Errorf("--root-directory: %w", err)
	}
	return nil
}

func (c *completed) completeEtcd() (err error) {
	if c.EtcdOwner.Owner == "" {
		c.EtcdOwner.Owner = c.Shard.Name
	}
	c.Embedded, err = c.EmbeddedEtcd.Complete(c.Etcd.StorageConfig.Transport, c.RootDirectory)
	return err
}

func (c *completed) completeServing() error {
	if err := c.ServerRun.Complete(); err != nil {
		return err
	}
	if c.BindFreePort {
		if c.SecureServing.BindPort != 0 {
			return fmt.Errorf("--experimental-bind-free-port: needs --secure-port=0, got %d", c.SecureServing.BindPort)
		}
		listener, port, err := genericoptions.CreateListener("tcp", net.JoinHostPort(c.SecureServing.BindAddress.String(), "0"), net.ListenConfig{})
		if err != nil {
			return fmt.Errorf("--experimental-bind-free-port: %w", err)
		}
		c.SecureServing.Listener, c.SecureServing.BindPort = listener, port
	}
	if c.RootDirectory == "" && c.SecureServing.ServerCert.CertKey.CertFile == "" {
		c.SecureServing.ServerCert.CertDirectory = "" // keeps the generated pair in memory only
	}
	ip := c.SecureServing.BindAddress
	if ip.IsUnspecified() {
		var err error
		if ip, err = c.SecureServing.DefaultExternalAddress(); err != nil {
			ip = net.IPv4(127, 0, 0, 1) // a host without a route is reachable on loopback only
		}
	}
	c.ExternalIP = ip.String()
	host := c.ExternalIP
	if u, err := url.Parse(c.Shard.BaseURL); err == nil && u.Hostname() != "" {
		host = u.Hostname()
	}
	c.ServerRun.ExternalHost = net.JoinHostPort(host, strconv.Itoa(c.SecureServing.BindPort))
	names := []string{"localhost"}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, ip}
	if err := servingcert.Default(c.SecureServing, host, names, ips); err != nil {
		return fmt.Errorf("creating the self-signed serving certificate in --cert-dir %q: %w", c.SecureServing.ServerCert.CertDirectory, err)
	}
	return nil
}

func (c *completed) completeURLs() error {
	if c.Shard.BaseURL == "" {
		c.Shard.BaseURL = "https://" + c.ServerRun.ExternalHost
	}
	if c.Shard.ExternalURL == "" {
		if c.Shard.LogicalClusterAdminKubeconfig != "" {
			return fmt.Errorf("--shard-external-url: required with --logical-cluster-admin-kubeconfig")
		}
		c.Shard.ExternalURL = c.Shard.BaseURL
	}
	if c.Shard.VirtualWorkspaceURL == "" {
		c.Shard.VirtualWorkspaceURL = c.Shard.BaseURL
	}
	for _, given := range []struct{ flag, value string }{
		{"--shard-base-url", c.Shard.BaseURL}, {"--shard-external-url", c.Shard.ExternalURL}, {"--shard-virtual-workspace-url", c.Shard.VirtualWorkspaceURL},
	} {
		if u, err := url.Parse(given.value); err != nil || u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("%s: got %q, want an https URL", given.flag, given.value)
		}
	}
	return nil
}

// validateShardLabels rejects what the root shard would refuse, and the label that has the name of the shard.
func validateShardLabels(labels map[string]string) []error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if key == "name" {
			errs = append(errs, errors.New(`--shard-labels: got a label "name", want others: that one has the value of --shard-name`))
		}
		for _, problem := range validation.IsQualifiedName(key) {
			errs = append(errs, fmt.Errorf("--shard-labels: got key %q, want that of a label: %s", key, problem))
		}
		for _, problem := range validation.IsValidLabelValue(labels[key]) {
			errs = append(errs, fmt.Errorf("--shard-labels: got %s=%q, want the value of a label: %s", key, labels[key], problem))
		}
	}
	return errs
}

func (c *completed) validate() error {
	var errs []error
	if problems := validation.IsDNS1123Label(c.Shard.Name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--shard-name: got %q, want a DNS label: %s", c.Shard.Name, strings.Join(problems, "; ")))
	}
	errs = append(errs, validateShardLabels(c.Shard.Labels)...)
	if v := c.Authorization.WebhookVersion; v != "v1" && v != "v1beta1" {
		errs = append(errs, fmt.Errorf("--authorization-webhook-version: got %q, want v1 or v1beta1", v))
	}
	errs = append(errs, c.SharedIndex.Validate()...)
	if v := c.Objects.ScanInterval; v <= 0 {
		errs = append(errs, fmt.Errorf("--logical-cluster-object-count-scan-interval: got %s, want more than 0", v))
	}
	if v := c.UsageInterval; v <= 0 {
		errs = append(errs, fmt.Errorf("--usage-flush-interval: got %s, want more than 0", v))
	}
	if v := c.WorkspaceAuditBytes; v != 0 && v < minWorkspaceAuditBytes {
		errs = append(errs, fmt.Errorf("--workspace-audit-log-bytes: got %d, want 0 for no log, or at least %d", v, minWorkspaceAuditBytes))
	}
	if v := c.Objects.DefaultLimit; v < 0 {
		errs = append(errs, fmt.Errorf("--logical-cluster-total-object-limit: got %d, want 0 for no limit, or more", v))
	}
	if v := c.Objects.DefaultByteLimit; v < AutomaticByteLimit {
		errs = append(errs, fmt.Errorf("--logical-cluster-total-byte-limit: got %d, want -1 for the default, 0 for no limit, or more", v))
	}
	if v := c.Shard.MaxLogicalClusters; v < 0 {
		errs = append(errs, fmt.Errorf("--shard-max-logical-clusters: got %d, want 0 for any number, or more", v))
	}
	if v := c.Shard.MaxObjects; v < 0 {
		errs = append(errs, fmt.Errorf("--shard-max-objects: got %d, want 0 for any number, or more", v))
	}
	if v := c.Shard.MaxObjectsPerRemoteShard; v < 0 {
		errs = append(errs, fmt.Errorf("--shard-max-objects-of-another: got %d, want 0 for any number, or more", v))
	}
	if reads, writes := c.ServerRun.MaxRequestsInFlight, c.ServerRun.MaxMutatingRequestsInFlight; reads < 0 || writes < 0 || reads+writes == 0 {
		errs = append(errs, fmt.Errorf("--max-requests-inflight, --max-mutating-requests-inflight: got %d and %d, want a sum of at least 1", reads, writes))
	}
	for _, err := range c.Metrics.Validate() {
		errs = append(errs, fmt.Errorf("--show-hidden-metrics-for-version, --disabled-metrics: %w", err))
	}
	errs = append(errs, c.SecureServing.Validate()...)
	errs = append(errs, c.Authentication.Validate()...)
	errs = append(errs, c.Audit.Validate()...)
	errs = append(errs, c.Features.Validate()...)
	if !c.Embedded {
		errs = append(errs, c.Etcd.Validate()...)
	}
	return joinErrors(errs)
}
