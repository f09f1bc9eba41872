// Package options turns the command line of a cache server into a validated, completed configuration. It starts nothing
// and opens no port; it creates files only below the root directory.
package options

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/atoll-dev/atoll/cacheserver"
	"github.com/atoll-dev/atoll/cacheserver/store"
	"github.com/atoll-dev/atoll/internal/certexpiry"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcdowner"
	"github.com/atoll-dev/atoll/internal/kubeconfig"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/internal/servingcert"
	"github.com/atoll-dev/atoll/internal/writetimeout"
)

const (
	// DefaultRootDirectory is the default directory of generated files.
	DefaultRootDirectory = ".kcp-cache"

	defaultPort  = 6443
	defaultOwner = "cache-server"
	// compactionInterval is how long etcd keeps old revisions at least: a watch that was disconnected for less resumes.
	compactionInterval = 5 * time.Minute
)

// Options are the flags as the user set them.
type Options struct {
	RootDirectory string

	ServerRun     *genericoptions.ServerRunOptions
	Etcd          *genericoptions.EtcdOptions
	SecureServing *genericoptions.SecureServingOptions
	ClientCert    *genericoptions.ClientCertAuthenticationOptions
	Audit         *genericoptions.AuditOptions
	Features      *genericoptions.FeatureOptions
	Logs          *logsapi.LoggingConfiguration

	EmbeddedEtcd embeddedetcd.Config
	// EtcdOwner names the owner of the keys in etcd.
	EtcdOwner etcdowner.Options
	// AlwaysAllowPaths need no authorization.
	AlwaysAllowPaths []string
	// SyntheticDelay is added to every request except health checks. For tests only.
	SyntheticDelay time.Duration

	// Name of this cache, and credentials for its parent.
	Name, ParentKubeconfig string
	// ShardTimeout is how long a shard without a Shard object may go without a report before its objects are deleted.
	ShardTimeout time.Duration
	// Quota are the limits of each shard.
	Quota store.Quota
	// WriteTimeouts end responses that clients do not read. They have no flags.
	WriteTimeouts writetimeout.Timeouts
}

// New returns the options with their defaults.
func New() *Options {
	o := &Options{
		RootDirectory:    DefaultRootDirectory,
		ServerRun:        genericoptions.NewServerRunOptions(),
		Etcd:             genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(reservedkeys.DefaultCachePrefix, nil)),
		SecureServing:    genericoptions.NewSecureServingOptions(),
		ClientCert:       &genericoptions.ClientCertAuthenticationOptions{},
		Audit:            genericoptions.NewAuditOptions(),
		Features:         genericoptions.NewFeatureOptions(),
		Logs:             logsapi.NewLoggingConfiguration(),
		EmbeddedEtcd:     embeddedetcd.NewConfig(),
		AlwaysAllowPaths: []string{"/healthz", "/readyz", "/livez"},
		ShardTimeout:     cacheserver.DefaultShardTimeout,
		Quota:            cacheserver.DefaultQuota,
		WriteTimeouts:    writetimeout.Default(),
	}
	o.Etcd.StorageConfig.Transport.ServerList = []string{embeddedetcd.InProcess}
	o.Etcd.StorageConfig.CompactionInterval = compactionInterval
	// Open watches end when the shutdown begins: clients reconnect to another replica.
	o.ServerRun.ShutdownWatchTerminationGracePeriod = 2 * time.Second
	o.SecureServing.BindPort = defaultPort
	o.SecureServing.ServerCert.PairName = "apiserver"
	o.SecureServing.ServerCert.CertDirectory = ""
	o.Features.EnablePriorityAndFairness = false
	o.Logs.Verbosity = 2
	return o
}

// Complete sets defaults, creates the root directory and a serving certificate if there is none, and returns the
// configuration of the server. Errors name the flag, its value and the expected one; all of them are returned together.
func (o *Options) Complete() (cacheserver.Config, error) {
	embedded, err := o.completeDirectories()
	if err != nil {
		return cacheserver.Config{}, err
	}
	if err := o.validate(embedded); err != nil {
		return cacheserver.Config{}, err
	}
	if err := o.completeServing(); err != nil {
		return cacheserver.Config{}, err
	}
	config := cacheserver.Config{
		ServerRun: o.ServerRun, Etcd: o.Etcd, SecureServing: o.SecureServing, ClientCert: o.ClientCert, Audit: o.Audit, Features: o.Features,
		AlwaysAllowPaths: o.AlwaysAllowPaths, Delay: o.SyntheticDelay, Name: o.Name, ShardTimeout: o.ShardTimeout, Quota: o.Quota,
		WriteTimeouts: o.WriteTimeouts,
	}
	if embedded {
		config.Embedded = &o.EmbeddedEtcd
	}
	if config.EtcdOwner = o.EtcdOwner; config.EtcdOwner.Owner == "" {
		config.EtcdOwner.Owner = defaultOwner
		if o.Name != "" {
			config.EtcdOwner.Owner += "/" + o.Name
		}
	}
	if o.ParentKubeconfig != "" {
		if config.Parent, err = kubeconfig.Load(o.ParentKubeconfig, ""); err != nil {
			return cacheserver.Config{}, fmt.Errorf("--parent-kubeconfig: %w", err)
		}
	}
	config.Certificates = certexpiry.New()
	config.Certificates.AddFile("tls-cert-file", o.SecureServing.ServerCert.CertKey.CertFile)
	config.Certificates.AddFile("etcd-certfile", o.Etcd.StorageConfig.Transport.CertFile)
	config.Certificates.AddClient("parent-kubeconfig", config.Parent)
	return config, nil
}

// completeDirectories returns whether etcd runs in this process.
func (o *Options) completeDirectories() (embedded bool, err error) {
	if o.RootDirectory != "" {
		if o.RootDirectory, err = filepath.Abs(o.RootDirectory); err != nil {
			return false, fmt.Errorf("--root-directory: %w", err)
		}
		if err := os.MkdirAll(o.RootDirectory, 0o700); err != nil {
			return false, fmt.Errorf("--root-directory: %w", err)
		}
	}
	if o.SecureServing.ServerCert.CertDirectory == "" {
		o.SecureServing.ServerCert.CertDirectory = o.RootDirectory // empty: the certificate is kept in memory only
	}
	return o.EmbeddedEtcd.Complete(o.Etcd.StorageConfig.Transport, o.RootDirectory)
}

func (o *Options) completeServing() error {
	if err := o.ServerRun.Complete(); err != nil {
		return err
	}
	host := "localhost"
	if ip := o.SecureServing.BindAddress; ip != nil && !ip.IsUnspecified() {
		host = ip.String()
	} else if external, err := o.SecureServing.DefaultExternalAddress(); err == nil {
		host = external.String()
	}
	if err := servingcert.Default(o.SecureServing, host, []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}); err != nil {
		return fmt.Errorf("creating the self-signed serving certificate in --cert-dir %q: %w", o.SecureServing.ServerCert.CertDirectory, err)
	}
	return nil
}

func (o *Options) validate(embedded bool) error {
	var errs []error
	if o.ClientCert.ClientCA == "" {
		errs = append(errs, errors.New("--client-ca-file: got nothing, want the CA of client certificates, which authenticates all users"))
	}
	for flag, file := range map[string]string{"client-ca-file": o.ClientCert.ClientCA, "parent-kubeconfig": o.ParentKubeconfig} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	if o.ParentKubeconfig != "" && o.Name == "" {
		errs = append(errs, errors.New("--cache-name: required with --parent-kubeconfig"))
	}
	if problems := validation.IsDNS1123Label(o.Name); o.Name != "" && len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--cache-name: got %q, want a DNS label: %s", o.Name, strings.Join(problems, "; ")))
	}
	if o.ShardTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--shard-silence: got %s, want more than 0", o.ShardTimeout))
	}
	if o.Quota.Objects < 0 {
		errs = append(errs, fmt.Errorf("--max-objects-per-shard: got %d, want 0 or more", o.Quota.Objects))
	}
	if o.Quota.Bytes < 0 {
		errs = append(errs, fmt.Errorf("--max-bytes-per-shard: got %d, want 0 or more", o.Quota.Bytes))
	}
	if o.SyntheticDelay < 0 {
		errs = append(errs, fmt.Errorf("--synthetic-delay: got %s, want 0 or more", o.SyntheticDelay))
	}
	transport := o.Etcd.StorageConfig.Transport
	if (transport.CertFile == "") != (transport.KeyFile == "") {
		errs = append(errs, errors.New("--etcd-certfile and --etcd-keyfile must be given together"))
	}
	if !embedded {
		errs = append(errs, o.Etcd.Validate()...)
	}
	errs = append(errs, o.SecureServing.Validate()...)
	errs = append(errs, o.ServerRun.Validate()...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Features.Validate()...)
	return utilerrors.NewAggregate(errs)
}
