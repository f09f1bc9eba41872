// Package virtualworkspaces is a separate server for the virtual workspaces of one shard, for clients that need
// another address or certificate than that of the shard.
//
// The shard serves the virtual workspaces from its watch caches, which this server does not duplicate: it
// authenticates requests as the shard would and forwards them. Clients with certificates, and users that a front
// proxy has authenticated, are impersonated with the credentials of --kubeconfig. Bearer tokens are forwarded over
// connections without credentials, for the shard to verify. No state of one user's requests is used for another's.
package virtualworkspaces

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"

	"github.com/atoll-dev/atoll/internal/certexpiry"
	"github.com/atoll-dev/atoll/internal/kubeconfig"
	"github.com/atoll-dev/atoll/internal/profiling"
	"github.com/atoll-dev/atoll/internal/servingcert"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/inflight"
	"github.com/atoll-dev/atoll/proxy/metrics"
)

// impersonationHeaders are the headers in which the shard reads the impersonated user.
func impersonationHeaders() identity.HeaderNames {
	return identity.HeaderNames{User: "Impersonate-User", Group: "Impersonate-Group", ExtraPrefix: "Impersonate-Extra-"}
}

// Server is a server that is ready to run.
type Server struct {
	options       *Options
	codecs        serializer.CodecFactory
	serving       *genericapiserver.SecureServingInfo
	audit         *genericapiserver.Config
	authenticator *identity.Authenticator
	shard         *url.URL
	// client sends readiness checks to the shard.
	client *http.Client

	metrics           *metrics.Metrics
	metricsHandler    http.Handler
	metricsAuthorizer authorizer.UnconditionalAuthorizer
	certificates      *certexpiry.Collector
	tokenReviews      authenticationclient.TokenReviewInterface

	inFlight   *inflight.Limiter
	transports []*backend.Transport
	// impersonating forwards requests of authenticated users, anonymous those with a token or without credentials.
	impersonating, anonymous *backend.Forwarder

	// stopBackground ends the background work of the authenticators; shuttingDown ends watches.
	stopBackground context.CancelFunc
	shuttingDown   context.Context
	startShutdown  context.CancelFunc
}

// New reads the files and opens the listener. Run, or Close, ends what it starts.
func New(o *Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{options: o, codecs: newCodecs(), metrics: metrics.New(), certificates: certexpiry.New(), inFlight: inflight.NewLimiter(o.InFlight)}
	s.metricsHandler = s.metrics.Handler()
	background, stopBackground := context.WithCancel(context.Background())
	s.stopBackground = stopBackground
	s.shuttingDown, s.startShutdown = context.WithCancel(context.Background())
	for _, step := range []func(context.Context) error{s.newClients, s.newAuthenticator, s.newAudit} {
		if err := step(background); err != nil {
			s.Close()
			return nil, err
		}
	}
	s.metrics.Registry.CustomMustRegister(s.certificates)
	return s, nil
}

// Close ends a server that does not run.
func (s *Server) Close() {
	s.startShutdown()
	s.stopBackground()
}

// newClients builds the clients of the shard, with the credentials of --kubeconfig and without.
func (s *Server) newClients(context.Context) error {
	config, err := kubeconfig.Load(s.options.Kubeconfig, s.options.Context)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	if s.shard, err = url.Parse(config.Host); err != nil || s.shard.Scheme != "https" || s.shard.Host == "" {
		return fmt.Errorf("--kubeconfig: got server %q, expected an https URL", config.Host)
	}
	credentials, err := s.newTransport("shard", config)
	if err != nil {
		return err
	}
	withoutCredentials, err := s.newTransport("shard-anonymous", rest.AnonymousClientConfig(config))
	if err != nil {
		return err
	}
	s.client = &http.Client{Transport: credentials}
	s.certificates.AddClient("kubeconfig", config)
	counters := backend.NewMetrics(s.metrics.Registry.MustRegister)
	s.impersonating = backend.NewForwarder(credentials, impersonationHeaders(), counters)
	s.anonymous = backend.NewForwarder(withoutCredentials, identity.DefaultHeaderNames(), counters)

	config.Host = s.shard.Scheme + "://" + s.shard.Host
	if s.metricsAuthorizer, err = metrics.NewAuthorizer(config); err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.Host += logicalcluster.Root.Path().URLPath()
	reviews, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	s.tokenReviews = reviews.TokenReviews()
	return nil
}

// newTransport returns a transport with the credentials of a configuration. Run reloads its certificates.
func (s *Server) newTransport(name string, config *rest.Config) (http.RoundTripper, error) {
	transport, err := backend.NewTransportFor(name, config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	s.transports = append(s.transports, transport)
	authenticating, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return authenticating, nil
}

// newAuthenticator builds the authenticator, and the listener, which advertises its CAs.
func (s *Server) newAuthenticator(ctx context.Context) error {
	var config kubeauthenticator.Config
	var err error
	if config.ClientCAContentProvider, err = s.options.ClientCert.GetClientCAContentProvider(); err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	if config.RequestHeaderConfig, err = s.options.RequestHeader.ToAuthenticationRequestHeaderConfig(); err != nil {
		return fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	s.authenticator, err = identity.NewAuthenticator(ctx, config, nil, identity.GroupFilter{Drop: identity.DefaultDropGroups()})
	if err != nil {
		return err
	}
	if err := servingcert.Default(s.options.SecureServing, "localhost", nil, nil); err != nil {
		return fmt.Errorf("generating a serving certificate: %w", err)
	}
	s.certificates.AddFile("tls-cert-file", s.options.SecureServing.ServerCert.CertKey.CertFile)
	if err := s.options.SecureServing.ApplyTo(&s.serving); err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	s.serving.Listener = s.options.WriteTimeouts.NewListener(s.serving.Listener)
	// Both CAs are advertised: that of users, and that of front proxies.
	var clientCAs []dynamiccertificates.CAContentProvider
	if config.ClientCAContentProvider != nil {
		clientCAs = append(clientCAs, config.ClientCAContentProvider)
	}
	if header := config.RequestHeaderConfig; header != nil && header.CAContentProvider != nil {
		clientCAs = append(clientCAs, header.CAContentProvider)
	}
	if len(clientCAs) > 0 {
		s.serving.ClientCA = dynamiccertificates.NewUnionCAContentProvider(clientCAs...)
	}
	return nil
}

// newAudit builds the configuration of the audit log.
func (s *Server) newAudit(context.Context) error {
	s.audit = genericapiserver.NewConfig(s.codecs)
	if err := s.options.Audit.ApplyTo(s.audit); err != nil {
		return fmt.Errorf("audit flags: %w", err)
	}
	s.audit.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(s.audit)
	return nil
}

// Run serves until the context ends, and then until requests have ended or the shutdown timeout has passed. Watches
// end at once.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	work, stopWork := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stopWork()
	for _, transport := range s.transports {
		running.Go(func() { transport.Run(work) })
	}
	if s.options.ProfilerAddress != "" {
		if err := profiling.Serve(work, &running, s.options.ProfilerAddress); err != nil {
			return err
		}
	}
	if log := s.audit.AuditBackend; log != nil {
		if err := log.Run(work.Done()); err != nil {
			return fmt.Errorf("starting the audit log: %w", err)
		}
		defer log.Shutdown()
	}
	stop := make(chan struct{})
	stopped, listenerStopped, err := s.serving.Serve(s.Handler(), s.options.ShutdownTimeout, stop)
	if err != nil {
		close(stop)
		return fmt.Errorf("serving: %w", err)
	}
	klog.InfoS("Serving virtual workspaces", "shard", s.shard.Host)
	<-ctx.Done()
	s.startShutdown()
	close(stop)
	<-listenerStopped
	<-stopped
	return nil
}
