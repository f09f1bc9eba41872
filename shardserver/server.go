package shardserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/bootstrap"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/metrics"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/sharding/heartbeat"
	"github.com/atoll-dev/atoll/shardserver/sharding/join"
	"github.com/atoll-dev/atoll/shardserver/storage"
	virtualapiexport "github.com/atoll-dev/atoll/shardserver/virtual/apiexport"
)

// Names of the post-start hooks, each a check of /readyz.
const (
	hookBootstrap   = "kcp-bootstrap-policy"
	hookControllers = "kcp-start-controllers"
	hookPolicy      = "kcp-follow-bootstrap-policy"
	hookCounts      = "kcp-count-objects"
	hookLoopback    = "kcp-serve-own-writes"
)

// Server is a shard that is ready to run.
type Server struct {
	// Generic is the API server below.
	Generic *genericapiserver.GenericAPIServer
	// Registry knows every stored resource.
	Registry *storage.Registry

	options options.Completed
	config  *Config
	etcd    *embeddedetcd.Server
	manager *controller.Manager
	// booted is closed when the bootstrap is done, ending when the shutdown begins, and controlled when the controllers
	// have ended.
	booted, ending, controlled chan struct{}

	// made makes definitions of schemas, for all controllers.
	made *definitions.Definitions
	// referrers know who refers to which export.
	referrers referrers
	// replication is nil where there is no cache.
	replication *replicator

	running  background.Group
	profiler *http.Server
	// reporter says how this shard is, beats when others were last heard of; registration is nil on the root shard.
	reporter     *heartbeat.Reporter
	beats        *heartbeat.Beats
	registration *join.Registration
	// streams are the open watches in virtual workspaces of exports; nil where there are none.
	streams *virtualapiexport.Streams
	// cache is the embedded cache server; nil where there is none.
	cache Cache
	// ran says that the API server was run, which destroys its storage when it ends.
	ran bool
}

// New starts what storage needs (the embedded etcd), creates all APIs and returns the server, which does not serve
// yet. On an error everything that was started is stopped.
//
// newCache makes the cache server of the installation if this shard embeds it; nil leaves it out.
func New(ctx context.Context, opts options.Completed, newCache NewCache) (_ *Server, err error) {
	s := &Server{
		options: opts, Registry: storage.NewRegistry(),
		booted: make(chan struct{}), ending: make(chan struct{}), controlled: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := s.startEtcd(ctx); err != nil {
		return nil, err
	}
	if s.config, err = newConfig(ctx, opts, s.Registry); err != nil {
		return nil, err
	}
	groups, err := s.config.createGroups(ctx)
	if err != nil {
		return nil, s.explainStorage(err)
	}
	s.config.shared = groups.shared
	s.config.serveCustomResources(groups)
	if err := s.addVirtualWorkspaces(groups); err != nil {
		return nil, err
	}
	if err := s.addCache(ctx, newCache); err != nil {
		return nil, err
	}
	if s.Generic, err = s.config.Generic.Complete(nil).New("kcp", genericapiserver.NewEmptyDelegate()); err != nil {
		return nil, fmt.Errorf("creating the API server: %w", err)
	}
	s.config.server = s.Generic
	if err := groups.install(s.Generic); err != nil {
		return nil, err
	}
	s.installTokenIssuer()
	s.addHealth()
	s.followReferrers()
	if err := s.addReplication(ctx); err != nil {
		return nil, err
	}
	s.followBindings()
	s.followDefinitions()
	metrics.Install(s.Generic.Handler.NonGoRestfulMux, s.Registry, opts.Shard.Name, append(s.replicationMetrics(), metrics.NewSharing(opts.Shard.Name, s.config.bindings, s.config.exports))...)
	s.Generic.AddPostStartHookOrDie(hookLoopback, s.serveOwnWrites)
	s.Generic.AddPostStartHookOrDie(hookBootstrap, s.bootstrap)
	if err := s.addRegistration(); err != nil {
		return nil, err
	}
	if err := s.addControllers(); err != nil {
		return nil, err
	}
	s.Generic.AddPostStartHookOrDie(hookPolicy, s.followPolicy)
	s.Generic.AddPostStartHookOrDie(hookClaims, s.followClaims)
	s.Generic.AddPostStartHookOrDie(hookConfigurations, s.followConfigurations)
	s.Generic.AddPostStartHookOrDie(hookConnections, s.followConnections)
	s.Generic.AddPostStartHookOrDie(hookCounts, s.countObjects)
	s.Generic.AddPostStartHookOrDie(hookViews, s.followViews)
	return s, s.config.writeKubeconfig()
}

// Run serves until the context ends, then shuts down gracefully: controllers first, requests next, etcd last.
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
	if err := s.startProfiler(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if s.etcd != nil {
		go func() {
			select {
			case err, ok := <-s.etcd.Err():
				if ok && ctx.Err() == nil {
					cancel(fmt.Errorf("embedded etcd failed: %w", err))
				}
			case <-ctx.Done():
			}
		}()
	}
	s.ran = true
	if err := s.Generic.PrepareRun().RunWithContext(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && cause != context.Canceled {
		return cause
	}
	return nil
}

// Host returns the "host:port" that clients reach the server by.
func (s *Server) Host() string { return s.options.ServerRun.ExternalHost }

// StorageTransport returns how the shard reaches etcd, for tools and tests that look at keys.
func (s *Server) StorageTransport() storagebackend.TransportConfig {
	return s.options.Etcd.StorageConfig.Transport
}

func (s *Server) startEtcd(ctx context.Context) error {
	if !s.options.Embedded {
		return nil
	}
	started := time.Now()
	server, err := embeddedetcd.Start(ctx, s.options.EmbeddedEtcd)
	if err != nil {
		return err
	}
	s.etcd = server
	server.Connect(&s.options.Etcd.StorageConfig.Transport)
	klog.V(2).InfoS("Embedded etcd serves", "directory", s.options.EmbeddedEtcd.Directory, "after", time.Since(started).Round(time.Millisecond))
	return nil
}

// explainStorage says what to look at when storage could not be reached in time.
func (s *Server) explainStorage(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("etcd at %s does not answer; check that it runs, and --etcd-servers, --etcd-cafile, --etcd-certfile and --etcd-keyfile: %w",
		strings.Join(s.StorageTransport().ServerList, ", "), err)
}

func (s *Server) bootstrap(hook genericapiserver.PostStartHookContext) error {
	started := time.Now()
	if err := bootstrap.Run(hook, s.config.clients.Typed, s.config.bootstrapOptions()); err != nil {
		if hook.Err() != nil {
			return nil // shutting down before the end of it
		}
		return fmt.Errorf("bootstrapping: %w", err)
	}
	klog.V(2).InfoS("Bootstrapped", "shard", s.options.Shard.Name, "after", time.Since(started).Round(time.Millisecond))
	close(s.booted)
	return nil
}

// bootstrapOptions say what the shard must hold, and how it is registered.
func (c *Config) bootstrapOptions() bootstrap.Options {
	return bootstrap.Options{
		ShardName:           c.options.Shard.Name,
		BaseURL:             c.options.Shard.BaseURL,
		ExternalURL:         c.options.Shard.ExternalURL,
		VirtualWorkspaceURL: c.options.Shard.VirtualWorkspaceURL,
		Root:                c.options.IsRoot(),
		Batteries:           c.options.Batteries.Names(),
		HomeWorkspaces:      c.options.Home.Enabled,
		HomeCreatorGroups:   c.options.Home.CreatorGroups,
		CacheAPIs:           c.options.FeatureEnabled(options.GateCacheAPIs),
	}
}

// serveOwnWrites spares what the shard itself writes the way through the network, for as long as it serves.
func (s *Server) serveOwnWrites(hook genericapiserver.PostStartHookContext) error {
	s.config.clients.ServeDirectly(hook, s.Generic.Handler)
	return nil
}

// followPolicy keeps the policy of system:admin compiled, which every request is decided by.
func (s *Server) followPolicy(hook genericapiserver.PostStartHookContext) error {
	s.running.Go(func() { s.config.authorizer.Run(hook) })
	return nil
}

// countObjects keeps the numbers that this process checks object limits against.
func (s *Server) countObjects(hook genericapiserver.PostStartHookContext) error {
	s.running.Go(func() { s.config.counts.Run(hook) })
	return nil
}

func (s *Server) startProfiler() error {
	if s.options.ProfilerAddress == "" {
		return nil
	}
	listener, err := net.Listen("tcp", s.options.ProfilerAddress)
	if err != nil {
		return fmt.Errorf("--profiler-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s.profiler = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.running.Go(func() { _ = s.profiler.Serve(listener) })
	return nil
}

func (s *Server) stop() {
	if s.profiler != nil {
		_ = s.profiler.Close()
	}
	s.running.Wait()
	if s.replication != nil {
		s.replication.close()
	}
	if s.config != nil {
		_ = s.config.keys.Close()
	}
	if !s.ran { // otherwise the API server has destroyed its storage when it ended
		for _, resource := range s.Registry.All() {
			resource.Store.Destroy()
		}
	}
	if s.cache != nil {
		s.cache.Close()
	}
	if s.etcd != nil {
		s.etcd.Close()
	}
}
