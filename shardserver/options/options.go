// Package options turns the command line of a shard into a checked, completed configuration (wall W9). It starts
// nothing and opens no port; it creates files only below the root directory.
package options

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/logs"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/servingcert"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// Defaults of the contract that clients rely on.
const (
	DefaultRootDirectory = ".kcp"
	DefaultSecurePort    = 6443
	DefaultShardName     = "root"
	DefaultIssuer        = "https://kcp.default.svc"
)

// Options are what the flags of a shard set. Use New for defaults, AddFlags to bind, Complete to check.
type Options struct {
	RootDirectory string

	ServerRun      *genericoptions.ServerRunOptions
	Etcd           *genericoptions.EtcdOptions
	SecureServing  *genericoptions.SecureServingOptionsWithLoopback
	Authentication *kubeoptions.BuiltInAuthenticationOptions
	Audit          *genericoptions.AuditOptions
	Features       *genericoptions.FeatureOptions
	Logs           *logs.Options

	EmbeddedEtcd  embeddedetcd.Config
	Shard         ShardOptions
	Controllers   ControllerOptions
	Authorization AuthorizationOptions
	AdminAuth     AdminAuthOptions
	Home          HomeOptions
	// RunVirtualWorkspaces serves virtual workspaces below /services/.
	RunVirtualWorkspaces bool
	// SharedIndex is where front proxies read what is on this shard, if there is one.
	SharedIndex *sharedindex.Options

	Objects ObjectOptions

	Admission AdmissionOptions

	// EventTTL is how long events are kept.
	EventTTL time.Duration
	// BatteriesIncluded is the raw value of --batteries-included.
	BatteriesIncluded []string
	// FeatureGates is the raw value of --feature-gates.
	FeatureGates []string
	// RootCAFile is published as kube-root-ca.crt. Empty means the serving certificate's own chain.
	RootCAFile string
	// ServiceAccountPrivateKeyFile signs service account tokens.
	ServiceAccountPrivateKeyFile string
	// ProfilerAddress serves pprof on a plain listener of its own when set.
	ProfilerAddress string
	// BindFreePort picks a free port; it needs --secure-port=0.
	BindFreePort bool

	unused unusedOptions
}

// ShardOptions say who this shard is and how it is reached.
type ShardOptions struct {
	Name                string
	BaseURL             string
	ExternalURL         string
	VirtualWorkspaceURL string
	ClientCertFile      string
	ClientKeyFile       string
	// RootIdentitiesFile seeds the identities of the root exports.
	RootIdentitiesFile string
	// RootKubeconfig leads a shard that is not root to the one that is, CacheKubeconfig any shard to its cache server. A
	// root shard without one runs a cache server itself.
	RootKubeconfig, CacheKubeconfig string
	// MaxLogicalClusters and MaxObjects are how much the shard is to hold: new workspaces go elsewhere from then on. 0 is
	// any number.
	MaxLogicalClusters, MaxObjects int64
	// MaxObjectsOfAnother is how many objects are taken that one other shard has published. 0 is any number.
	MaxObjectsOfAnother int64

	// The kubeconfigs below are how shards reach each other; with one shard the loopback does it all.
	LogicalClusterAdminKubeconfig         string
	ExternalLogicalClusterAdminKubeconfig string
}

// ControllerOptions configure the controllers of the shard.
type ControllerOptions struct {
	Enable                  bool
	EnableLeaderElection    bool
	LeaderElectionNamespace string
	LeaderElectionName      string
}

// ObjectOptions bound how many objects a logical cluster may hold.
type ObjectOptions struct {
	// DefaultLimit is for logical clusters without a limit of their own; 0 is none.
	DefaultLimit int64
	// ScanInterval is the time between two counts of all keys.
	ScanInterval time.Duration
}

// AdmissionOptions change which admission plug-ins run and how.
type AdmissionOptions struct {
	// Enable and Disable name plug-ins; what they are called, package admission knows.
	Enable, Disable []string
	// ConfigFile is a file of kind AdmissionConfiguration, or empty.
	ConfigFile string
}

// AuthorizationOptions configure what stands in front of RBAC.
type AuthorizationOptions struct {
	AlwaysAllowPaths []string
	// Order lists the authorizers in the order in which they are asked.
	Order []string
	// WebhookConfigFile switches the webhook on.
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

// New returns the options with their defaults. The root directory comes first because other defaults follow it.
func New(rootDirectory string) *Options {
	o := &Options{
		RootDirectory:  rootDirectory,
		ServerRun:      genericoptions.NewServerRunOptions(),
		Etcd:           genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(kubeoptions.DefaultEtcdPathPrefix, nil)),
		SecureServing:  kubeoptions.NewSecureServingOptions(),
		Authentication: kubeoptions.NewBuiltInAuthenticationOptions().WithAll(),
		Audit:          genericoptions.NewAuditOptions(),
		Features:       genericoptions.NewFeatureOptions(),
		Logs:           logs.NewOptions(),
		EmbeddedEtcd:   embeddedetcd.NewConfig(),
		Shard:          ShardOptions{Name: DefaultShardName, MaxObjectsOfAnother: cacheclient.DefaultMaxObjects},
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
		Objects:              ObjectOptions{ScanInterval: time.Minute},
		EventTTL:             time.Hour,
		BatteriesIncluded:    DefaultBatteries(),
	}
	o.Etcd.StorageConfig.Transport.ServerList = []string{embeddedetcd.InProcess}
	o.Etcd.DefaultStorageMediaType = "application/vnd.kubernetes.protobuf"
	// The deletion of a collection has a minute, as any request. One object after the other, that is too short for some
	// thousand of them on a busy shard.
	o.Etcd.DeleteCollectionWorkers = 4
	// Without a period of grace, an open watch holds up the shutdown for as long as a request may take.
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

// completed is what Complete makes of Options; only Complete can.
type completed struct {
	*Options
	Batteries  Batteries
	Embedded   bool
	ExternalIP string
	// features are the feature gates that are on; FeatureEnabled reads them.
	features map[string]bool
}

// Completed options are checked and free of gaps.
type Completed struct{ *completed }

// Complete fills the gaps, creates the root directory and generated keys, and checks everything. Its errors name
// the flag, what it got and what it wants.
func (o *Options) Complete() (Completed, error) {
	batteries, err := ParseBatteries(o.BatteriesIncluded)
	if err != nil {
		return Completed{}, err
	}
	features, err := ParseFeatureGates(o.FeatureGates)
	if err != nil {
		return Completed{}, err
	}
	if err := applyUpstream(features); err != nil {
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
		c.SecureServing.ServerCert.CertDirectory = "" // the pair then lives in memory only
	}
	ip := c.SecureServing.BindAddress
	if ip.IsUnspecified() {
		var err error
		if ip, err = c.SecureServing.DefaultExternalAddress(); err != nil {
			ip = net.IPv4(127, 0, 0, 1) // a host without a route to anywhere is still reached from itself
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
	if err := servingcert.Default(c.SecureServing.SecureServingOptions, host, names, ips); err != nil {
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

func (c *completed) validate() error {
	var errs []error
	if problems := validation.IsDNS1123Label(c.Shard.Name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--shard-name: got %q, want a DNS label: %s", c.Shard.Name, strings.Join(problems, "; ")))
	}
	if v := c.Authorization.WebhookVersion; v != "v1" && v != "v1beta1" {
		errs = append(errs, fmt.Errorf("--authorization-webhook-version: got %q, want v1 or v1beta1", v))
	}
	errs = append(errs, c.SharedIndex.Validate()...)
	if v := c.Objects.ScanInterval; v <= 0 {
		errs = append(errs, fmt.Errorf("--logical-cluster-object-count-scan-interval: got %s, want more than 0", v))
	}
	if v := c.Objects.DefaultLimit; v < 0 {
		errs = append(errs, fmt.Errorf("--logical-cluster-total-object-limit: got %d, want 0 for no limit, or more", v))
	}
	if v := c.Shard.MaxLogicalClusters; v < 0 {
		errs = append(errs, fmt.Errorf("--shard-max-logical-clusters: got %d, want 0 for any number, or more", v))
	}
	if v := c.Shard.MaxObjects; v < 0 {
		errs = append(errs, fmt.Errorf("--shard-max-objects: got %d, want 0 for any number, or more", v))
	}
	if v := c.Shard.MaxObjectsOfAnother; v < 0 {
		errs = append(errs, fmt.Errorf("--shard-max-objects-of-another: got %d, want 0 for any number, or more", v))
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
