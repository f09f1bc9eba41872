// Package options turns the command line of a cache server into a checked, completed configuration. It starts nothing and
// opens no port; it creates files only below the root directory.
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
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/servingcert"
)

const (
	// DefaultRootDirectory is where generated files go.
	DefaultRootDirectory = ".kcp-cache"

	defaultPrefix = "/cache"
	defaultPort   = 6443
	// compactionInterval is how long etcd keeps old revisions for, at least: a follower that was away for less resumes.
	compactionInterval = 5 * time.Minute
)

// Options are the flags as the user set them.
type Options struct {
	RootDirectory string

	ServerRun     *genericoptions.ServerRunOptions
	Etcd          *genericoptions.EtcdOptions
	SecureServing *genericoptions.SecureServingOptionsWithLoopback
	ClientCert    *genericoptions.ClientCertAuthenticationOptions
	Audit         *genericoptions.AuditOptions
	Features      *genericoptions.FeatureOptions
	Logs          *logsapi.LoggingConfiguration

	EmbeddedEtcd embeddedetcd.Config
	// AlwaysAllowPaths need no authorization.
	AlwaysAllowPaths []string
	// SyntheticDelay is added to every request but those of health. Tests only.
	SyntheticDelay time.Duration

	// Name of this cache, and credentials for the one above it.
	Name, ParentKubeconfig string
	// ShardTimeout is how long a shard without a Shard object may be silent before its part of the cache is removed.
	ShardTimeout time.Duration
	// Quota are how much each shard may have in this cache.
	Quota store.Quota
}

// New returns the options with their defaults.
func New() *Options {
	o := &Options{
		RootDirectory:    DefaultRootDirectory,
		ServerRun:        genericoptions.NewServerRunOptions(),
		Etcd:             genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(defaultPrefix, nil)),
		SecureServing:    genericoptions.NewSecureServingOptions().WithLoopback(),
		ClientCert:       &genericoptions.ClientCertAuthenticationOptions{},
		Audit:            genericoptions.NewAuditOptions(),
		Features:         genericoptions.NewFeatureOptions(),
		Logs:             logsapi.NewLoggingConfiguration(),
		EmbeddedEtcd:     embeddedetcd.NewConfig(),
		AlwaysAllowPaths: []string{"/healthz", "/readyz", "/livez"},
		ShardTimeout:     cacheserver.DefaultShardTimeout,
		Quota:            cacheserver.DefaultQuota,
	}
	o.Etcd.StorageConfig.Transport.ServerList = []string{embeddedetcd.InProcess}
	o.Etcd.StorageConfig.CompactionInterval = compactionInterval
	// Open watches are told to go as soon as the shutdown begins: their clients come back to another replica.
	o.ServerRun.ShutdownWatchTerminationGracePeriod = 2 * time.Second
	o.SecureServing.BindPort = defaultPort
	o.SecureServing.ServerCert.PairName = "apiserver"
	o.SecureServing.ServerCert.CertDirectory = ""
	o.Features.EnablePriorityAndFairness = false
	o.Logs.Verbosity = 2
	return o
}

// Complete fills the gaps, creates the root directory and a serving certificate if there is none, and returns what the
// server is made of. Errors name the flag, what it got and what it wants; all of them come together.
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
	}
	if embedded {
		config.Embedded = &o.EmbeddedEtcd
	}
	if o.ParentKubeconfig != "" {
		if config.Parent, err = readKubeconfig(o.ParentKubeconfig); err != nil {
			return cacheserver.Config{}, fmt.Errorf("--parent-kubeconfig: %w", err)
		}
	}
	return config, nil
}

// completeDirectories tells whether etcd is to run in this process.
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
		o.SecureServing.ServerCert.CertDirectory = o.RootDirectory // empty: the pair lives in memory alone
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
	if err := servingcert.Default(o.SecureServing.SecureServingOptions, host, []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}); err != nil {
		return fmt.Errorf("creating the self-signed serving certificate in --cert-dir %q: %w", o.SecureServing.ServerCert.CertDirectory, err)
	}
	return nil
}

func (o *Options) validate(embedded bool) error {
	var errs []error
	if o.ClientCert.ClientCA == "" {
		errs = append(errs, errors.New("--client-ca-file: got nothing, want the CA of client certificates: nobody could be told apart without one"))
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
