// Package shardserver is the shard: a stock generic API server whose storage, authorization and controllers know logical
// clusters (docs/architecture.md). It is a library: options become dependencies, dependencies a Server; cmd/kcp only
// binds flags.
//
// The files, in the order in which a shard is built:
//
//	server.go       lifecycle of the process: start, background work, shutdown
//	config.go       all parts of a shard in topological order; what flags configure
//	storage.go      storage of every resource, API groups
//	indexes.go      indexes over the watch caches, and what depends on them
//	handlers.go     the handler chain, virtual workspaces
//	sharding.go     join, heartbeat, replication
//	controllers.go  controllers and leader election
//
// This package only assembles parts that other packages implement.
package shardserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/embedded"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcddial"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/bootstrap"
	"github.com/atoll-dev/atoll/shardserver/fence"
	"github.com/atoll-dev/atoll/shardserver/metrics"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Names of the post-start hooks, each a check of /readyz, and of the pre-shutdown hook.
const (
	hookBootstrap         = "kcp-bootstrap-policy"
	hookInformers         = "kcp-start-informers"
	hookVirtualWorkspaces = "kcp-start-virtual-workspaces"
	hookCacheServer       = "kcp-start-cache-server"
	hookControllers       = "kcp-start-controllers"
	hookLoopback          = "kcp-start-loopback"
	hookStopControllers   = "kcp-stop-controllers"
)

// connectionsTimeout bounds how long the shutdown waits for connections to close. The requests on them have their own
// bounds. An HTTP/2 connection whose handshake ends after the shutdown has begun gets no request to close, and stays open
// until its client closes it, whether it carries requests or not.
const connectionsTimeout = 2 * time.Second

// Server is a shard that is ready to run.
type Server struct {
	// Generic is the API server below.
	Generic *genericapiserver.GenericAPIServer
	// Registry has every stored resource.
	Registry *storage.Registry

	*dependencies
	etcd       *embeddedetcd.Server // nil with an etcd outside of this process
	etcdDialer *etcddial.Dialer     // nil with etcd
	background background.Group
	profiler   *http.Server
	// bootstrapped is closed after the bootstrap, stopping when the shutdown begins, and controllersStopped after the
	// controllers have ended.
	bootstrapped, stopping, controllersStopped chan struct{}
	// started is true once the API server runs, which destroys its storage when it ends.
	started bool
}

// New starts what storage needs (the embedded etcd), creates all APIs and returns the server, which does not serve
// yet. On an error everything that was started is stopped.
//
// newCache creates the cache server of the installation if this shard embeds it; nil leaves it out.
func New(ctx context.Context, opts options.Completed, newCache embedded.NewServerFunc) (_ *Server, err error) {
	registry := storage.NewRegistry(kcpcore.Locality)
	s := &Server{
		Registry:     registry,
		dependencies: newDependencies(opts, registry),
		bootstrapped: make(chan struct{}), stopping: make(chan struct{}), controllersStopped: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := s.startEtcd(ctx); err != nil {
		return nil, err
	}
	if err := s.build(ctx, newCache); err != nil {
		return nil, err
	}
	s.generic.SecureServing.Listener = opts.WriteTimeouts.NewListener(s.generic.SecureServing.Listener)
	if s.Generic, err = s.generic.Complete(nil).New("kcp", genericapiserver.NewEmptyDelegate()); err != nil {
		return nil, fmt.Errorf("creating the API server: %w", err)
	}
	s.Generic.ShutdownTimeout = connectionsTimeout
	s.Generic.AggregatedLegacyDiscoveryGroupManager = s.builtInGroups
	s.openAPISpec = s.Generic
	if err := s.groups.install(s.Generic); err != nil {
		return nil, err
	}
	s.installTokenIssuer(s.Generic)
	certificates, err := opts.Certificates()
	if err != nil {
		return nil, err
	}
	s.keys.InstallSizes(s.Generic.Handler.NonGoRestfulMux)
	if s.migrations != nil {
		s.migrations.InstallOutdated(s.Generic.Handler.NonGoRestfulMux, s.Generic.Serializer)
	}
	metrics.Install(s.Generic.Handler.NonGoRestfulMux, registry, opts.Shard.Name, append(s.collectors(), certificates)...)
	s.Generic.RegisterDestroyFunc(s.definitions.Close)
	for _, store := range s.cachedStores() {
		s.Generic.RegisterDestroyFunc(store.Close)
	}
	s.addHooks()
	return s, s.writeKubeconfig()
}

// addHooks ties the parts of the shard to the lifecycle of the API server.
func (s *Server) addHooks() {
	hooks := map[string]genericapiserver.PostStartHookFunc{
		hookLoopback: func(hook genericapiserver.PostStartHookContext) error {
			s.clients.ServeDirectly(hook, s.Generic.Handler) // own writes do not go through the network
			return nil
		},
		hookBootstrap:   s.bootstrap,
		hookControllers: s.startControllers,
	}
	for name, tasks := range s.backgroundTasks() {
		hooks[name] = func(hook genericapiserver.PostStartHookContext) error { return s.startTasks(hook, tasks) }
	}
	var pending atomic.Int64
	pending.Store(int64(len(hooks)))
	for name, run := range hooks {
		s.Generic.AddPostStartHookOrDie(name, func(hook genericapiserver.PostStartHookContext) error {
			err := run(hook)
			if err == nil && pending.Add(-1) == 0 && hook.Err() == nil {
				s.logReady()
			}
			return err
		})
	}
	if s.manager != nil {
		s.Generic.AddPreShutdownHookOrDie(hookStopControllers, s.stopControllers)
	}
}

// logReady logs the next step for the person who started the shard.
func (s *Server) logReady() {
	if s.admin == nil {
		klog.InfoS("Ready", "shard", s.options.Shard.Name, "url", s.options.Shard.BaseURL)
		return
	}
	klog.InfoS(fmt.Sprintf("Ready. To use it, type: export KUBECONFIG=%s; kubectl get workspaces", s.options.AdminAuth.KubeconfigPath))
}

// backgroundTask runs beside the requests for as long as the server serves.
type backgroundTask struct {
	name string
	run  func(context.Context)
	// waitForSync delays the readiness of the server; nil does not.
	waitForSync func(context.Context) error
}

// backgroundTasks returns all background work by the post-start hook that starts it.
func (s *Server) backgroundTasks() map[string][]backgroundTask {
	tasks := map[string][]backgroundTask{hookInformers: {
		{"bindings", s.bindings.Run, s.bindings.WaitForSync},
		{"exports", s.exports.Run, s.exports.WaitForSync},
		{"workspace types", s.workspaceTypes.Run, s.workspaceTypes.WaitForSync},
		{"consumers of exports", s.consumers.Run, s.consumers.WaitForSync},
		{"endpoint slices of exports", s.slices.Run, s.slices.WaitForSync},
		{"definitions", s.definitions.Run, s.definitions.WaitForSync},
		{"permission claims", s.claims.Run, nil},
		{"bootstrap policy", s.authorizer.Run, nil},
		{"admission configurations", s.dynamicAdmission.Run, nil},
		{"conditions of suspended expressions", s.suspensionConditions().Run, nil},
		{"logical clusters", func(ctx context.Context) { s.watchTerminator.Run(fence.WithMover(ctx), s.registry) }, nil},
		{"object counts", s.objectCounts.Run, nil},
		{"workspace limits", s.workspaceLimits.Run, s.workspaceLimits.WaitForSync},
		{"etcd space", s.space.Run, nil},
		{"usage", s.usage.Run, nil},
		{"shard reports", s.heartbeats.Run, nil},
		{"release of a restore", s.followRestore, nil},
	}}
	if s.workspaceLog != nil {
		tasks[hookInformers] = append(tasks[hookInformers], backgroundTask{"audit events of logical clusters", s.workspaceLog.Run, nil})
	}
	if s.fence != nil {
		tasks[hookInformers] = append(tasks[hookInformers], backgroundTask{"moves of logical clusters", s.fence.Run, s.fence.WaitForSync})
	}
	if s.migrations != nil {
		tasks[hookInformers] = append(tasks[hookInformers], backgroundTask{"logical clusters that have moved since a backup", s.migrations.FollowOutdated, nil})
	}
	if s.registration != nil {
		tasks[hookInformers] = append(tasks[hookInformers], backgroundTask{"registration", s.registration.Run, nil})
	}
	if s.replication != nil {
		tasks[hookInformers] = append(tasks[hookInformers], backgroundTask{"cache", s.runReplication, s.waitForReplicaSync})
	}
	for _, store := range s.cachedStores() {
		tasks[hookInformers] = append(tasks[hookInformers], backgroundTask{"idle storages of cached resources", store.Run, nil})
	}
	for _, watches := range s.exportWatches {
		tasks[hookVirtualWorkspaces] = append(tasks[hookVirtualWorkspaces], backgroundTask{"watches of exports", watches.Run, nil})
	}
	if s.cache != nil {
		tasks[hookCacheServer] = []backgroundTask{{"cache server", s.cache.Run, nil}}
	}
	return tasks
}

// startTasks runs tasks in the background and returns when those that delay readiness have synced.
func (s *Server) startTasks(hook genericapiserver.PostStartHookContext, tasks []backgroundTask) error {
	for _, task := range tasks {
		s.background.Go(func() { task.run(hook) })
	}
	for _, task := range tasks {
		if task.waitForSync == nil {
			continue
		}
		if err := task.waitForSync(hook); err != nil && hook.Err() == nil {
			return fmt.Errorf("waiting for %s: %w", task.name, err)
		}
	}
	return nil
}

func (s *Server) bootstrap(hook genericapiserver.PostStartHookContext) error {
	started := time.Now()
	if err := bootstrap.Run(hook, s.clients.Typed, s.bootstrapOptions()); err != nil {
		if hook.Err() != nil {
			return nil // the server shuts down
		}
		return fmt.Errorf("bootstrapping: %w", err)
	}
	klog.V(2).InfoS("Bootstrapped", "shard", s.options.Shard.Name, "after", time.Since(started).Round(time.Millisecond))
	close(s.bootstrapped)
	return nil
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
	s.started = true
	if err := s.Generic.PrepareRun().RunWithContext(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && cause != context.Canceled {
		return cause
	}
	return nil
}

// Host returns the "host:port" of the server for clients.
func (s *Server) Host() string { return s.options.ServerRun.ExternalHost }

// Fence returns what refuses requests to logical clusters that move; nil without the feature gate.
func (s *Server) Fence() *fence.Fence { return s.fence }

// StorageTransport returns the connection to etcd, for tools and tests that read keys.
func (s *Server) StorageTransport() storagebackend.TransportConfig {
	return s.options.Etcd.StorageConfig.Transport
}

func (s *Server) startEtcd(ctx context.Context) error {
	if !s.options.Embedded {
		s.etcdDialer = etcddial.New()
		s.options.Etcd.StorageConfig.Transport.EgressLookup = s.etcdDialer.Lookup
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

// explainStorageError adds to a timeout of etcd what an administrator can check.
func explainStorageError(err error, transport storagebackend.TransportConfig) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("etcd at %s does not respond; check that it runs, and --etcd-servers, --etcd-cafile, --etcd-certfile and --etcd-keyfile: %w",
		strings.Join(transport.ServerList, ", "), err)
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
	s.background.Go(func() { _ = s.profiler.Serve(listener) })
	return nil
}

// stop releases everything that New and Run started, in the reverse order of their dependencies.
func (s *Server) stop() {
	if s.profiler != nil {
		_ = s.profiler.Close()
	}
	s.background.Wait()
	if s.usage != nil {
		s.usage.Close()
	}
	if s.replication != nil {
		s.replication.close()
	}
	if s.migrations != nil {
		s.migrations.Close()
		_ = s.migrations.etcd.Close()
	}
	if s.backends != nil {
		s.backends.Close()
	}
	if s.keys != nil {
		_ = s.keys.Close()
	}
	if s.fence != nil {
		_ = s.fence.Close()
	}
	if !s.started { // otherwise the API server has destroyed its storage when it ended
		for _, resource := range s.Registry.All() {
			resource.Store.Destroy()
		}
	}
	if s.cache != nil {
		s.cache.Close()
	}
	if s.etcdDialer != nil {
		s.etcdDialer.Close()
	}
	if s.etcd != nil {
		s.etcd.Close()
	}
}
