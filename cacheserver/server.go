package cacheserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/api"
	"github.com/atoll-dev/atoll/cacheserver/scope"
	"github.com/atoll-dev/atoll/cacheserver/store"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/certexpiry"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcdowner"
	"github.com/atoll-dev/atoll/internal/writetimeout"
)

// Config is the configuration of a standalone cache server. Package options creates it from flags.
type Config struct {
	ServerRun     *genericoptions.ServerRunOptions
	Etcd          *genericoptions.EtcdOptions
	SecureServing *genericoptions.SecureServingOptionsWithLoopback
	ClientCert    *genericoptions.ClientCertAuthenticationOptions
	Audit         *genericoptions.AuditOptions
	Features      *genericoptions.FeatureOptions
	// EtcdOwner names the owner of the keys in etcd.
	EtcdOwner etcdowner.Options
	// Embedded runs etcd in the process; nil if an external etcd is used.
	Embedded *embeddedetcd.Config

	AlwaysAllowPaths []string
	// Certificates is the metric of the certificates that the server presents to clients, to etcd and to its parent. The process
	// that runs the server registers it.
	Certificates *certexpiry.Collector
	// Delay is added to every request.
	Delay time.Duration
	// Name, Parent and ShardTimeout are those of HandlerConfig.
	Name         string
	Parent       *rest.Config
	ShardTimeout time.Duration
	// Quota are the limits of each shard.
	Quota store.Quota
	// WriteTimeouts end responses that clients do not read.
	WriteTimeouts writetimeout.Timeouts
}

// hookBackground is the name of the post-start hook that starts the background work.
const hookBackground = "cache-server-start-background"

// Server is a cache server that is ready to run.
type Server struct {
	// Generic is the stock server around the cache.
	Generic *genericapiserver.GenericAPIServer

	handler *Handler
	etcd    *embeddedetcd.Server
	running background.Group
}

// New starts the dependencies of the storage and returns the server, which does not serve yet. On an error everything
// that was started is stopped.
func New(ctx context.Context, config Config) (_ *Server, err error) {
	s := &Server{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if config.Embedded != nil {
		if s.etcd, err = embeddedetcd.Start(ctx, *config.Embedded); err != nil {
			return nil, err
		}
		s.etcd.Connect(&config.Etcd.StorageConfig.Transport)
	}
	generic, err := config.newGenericConfig()
	if err != nil {
		return nil, err
	}
	claim := func(ctx context.Context, etcd *clientv3.Client) error {
		return etcdowner.Acquire(ctx, etcd, generic.SecureServing, config.EtcdOwner, config.Etcd.StorageConfig.Prefix)
	}
	s.handler, err = NewHandler(ctx, HandlerConfig{
		Store: store.Config{
			Transport: config.Etcd.StorageConfig.Transport, Prefix: config.Etcd.StorageConfig.Prefix,
			CompactionInterval: config.Etcd.StorageConfig.CompactionInterval,
			Transformer:        resourceTransformers(generic), Claim: claim,
		},
		Name: config.Name, Parent: config.Parent, ShardTimeout: config.ShardTimeout, Quota: config.Quota,
		MinWatch: time.Duration(generic.MinRequestTimeout) * time.Second, MaxBody: generic.MaxRequestBodyBytes,
		AlwaysAllow: config.AlwaysAllowPaths,
	})
	if err != nil {
		return nil, err
	}
	generic.Authorization.Authorizer = s.handler.Authorizer()
	generic.BuildHandlerChainFunc = func(inner http.Handler, c *genericapiserver.Config) http.Handler {
		handler := genericapiserver.DefaultBuildHandlerChain(withDelay(inner, config.Delay), c)
		return config.WriteTimeouts.WithTimeouts(scope.WithScope(handler, s.handler.writeScopeError))
	}
	generic.SecureServing.Listener = config.WriteTimeouts.NewListener(generic.SecureServing.Listener)
	if s.Generic, err = generic.Complete(nil).New("cache-server", genericapiserver.NewEmptyDelegate()); err != nil {
		return nil, fmt.Errorf("creating the server: %w", err)
	}
	// Requests have bounds of their own. A connection whose handshake ends after the shutdown has begun gets no request
	// to close.
	s.Generic.ShutdownTimeout = 2 * time.Second
	s.install()
	return s, nil
}

func (s *Server) install() {
	mux := s.Generic.Handler.NonGoRestfulMux
	for _, prefix := range []string{"/api", "/apis"} {
		mux.Handle(prefix, s.handler.api)
		mux.HandlePrefix(prefix+"/", s.handler.api)
	}
	s.Generic.AddPostStartHookOrDie(hookBackground, func(hook genericapiserver.PostStartHookContext) error {
		s.running.Go(func() { s.handler.Run(hook) })
		return nil
	})
}

// Run serves until the context ends, then shuts down gracefully: requests first, etcd last.
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if s.etcd != nil {
		s.running.Go(func() {
			select {
			case err, ok := <-s.etcd.Err():
				if ok && ctx.Err() == nil {
					cancel(fmt.Errorf("embedded etcd failed: %w", err))
				}
			case <-ctx.Done():
			}
		})
	}
	klog.InfoS("Serving", "address", s.Generic.SecureServingInfo.Listener.Addr())
	if err := s.Generic.PrepareRun().RunWithContext(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && cause != context.Canceled {
		return cause
	}
	return nil
}

func (s *Server) stop() {
	s.running.Wait()
	if s.handler != nil {
		s.handler.Close()
	}
	if s.etcd != nil {
		s.etcd.Close()
	}
}

// newGenericConfig returns the configuration of the stock server: its chain, with client certificates only.
func (c Config) newGenericConfig() (*genericapiserver.Config, error) {
	generic := genericapiserver.NewConfig(api.Codecs)
	if err := c.ServerRun.ApplyTo(generic); err != nil {
		return nil, err
	}
	if err := c.SecureServing.ApplyTo(&generic.SecureServing, &generic.LoopbackClientConfig); err != nil {
		return nil, fmt.Errorf("opening the secure port: %w", err)
	}
	if err := c.Features.ApplyTo(generic, nil, nil); err != nil {
		return nil, err
	}
	if err := c.Audit.ApplyTo(generic); err != nil {
		return nil, fmt.Errorf("audit flags: %w", err)
	}
	if err := c.Etcd.ApplyTo(generic); err != nil {
		return nil, fmt.Errorf("etcd flags: %w", err)
	}
	if err := c.applyAuthentication(generic); err != nil {
		return nil, err
	}
	generic.RequestInfoResolver = requestInfoResolver
	generic.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	generic.EnableDiscovery, generic.EnableIndex = false, false
	generic.FlowControl = nil
	generic.SkipOpenAPIInstallation = true
	return generic, nil
}

// applyAuthentication enables client certificates. Requests without one are anonymous, for the always-allowed paths.
func (c Config) applyAuthentication(generic *genericapiserver.Config) error {
	provider, err := c.ClientCert.GetClientCAContentProvider()
	if err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	if err := generic.Authentication.ApplyClientCert(provider, generic.SecureServing); err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	generic.Authentication.Authenticator = union.New(
		group.NewAuthenticatedGroupAdder(x509.NewDynamic(provider.VerifyOptions, x509.CommonNameUserConversion)),
		anonymous.NewAuthenticator(nil),
	)
	return nil
}

// withDelay delays every request.
func withDelay(handler http.Handler, delay time.Duration) http.Handler {
	if delay == 0 {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-req.Context().Done():
			return
		case <-timer.C:
		}
		handler.ServeHTTP(w, req)
	})
}
