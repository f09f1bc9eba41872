// Package virtualworkspaces is a server of its own for the virtual workspaces of one shard. It stands where clients
// should reach them at another address, or behind another certificate, than the shard itself.
//
// The views are those of the shard, which has the data in its watch caches: a second server over the same data would
// hold it a second time. This one says who is asking, as the shard would, and passes requests on. Clients with
// certificates, and users whom a proxy in front names, go on by impersonation under the credentials of --kubeconfig;
// bearer tokens go on as they are, over connections without any credentials of ours, for the shard to check. Nothing of
// one user's is kept for another's requests.
package virtualworkspaces

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"

	"github.com/atoll-dev/atoll/internal/servingcert"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/profiles"
	"github.com/atoll-dev/atoll/proxy/scrape"
)

// impersonation are the headers in which the shard reads on whose behalf a request comes.
func impersonation() identity.HeaderNames {
	return identity.HeaderNames{User: "Impersonate-User", Group: "Impersonate-Group", ExtraPrefix: "Impersonate-Extra-"}
}

// Server is ready to run.
type Server struct {
	options *Options
	serving *genericapiserver.SecureServingInfo
	audit   *genericapiserver.Config
	auth    *identity.Authenticator
	shard   *url.URL
	// client asks the shard whether it is ready.
	client *http.Client
	// scrapers decides who reads the page of metrics, reviews asks the shard about their tokens.
	metrics  *scrape.Metrics
	page     http.Handler
	scrapers authorizer.Authorizer
	reviews  authenticationclient.TokenReviewInterface
	// acting passes requests on in the name of users, plain as they are.
	acting, plain *backend.Forwarder

	release  context.CancelFunc
	draining context.Context
	drain    context.CancelFunc
}

// New reads the files and opens the listener. Run, or Close, ends what it starts.
func New(o *Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{options: o, metrics: scrape.New()}
	s.page = s.metrics.Page()
	background, release := context.WithCancel(context.Background())
	s.release = release
	s.draining, s.drain = context.WithCancel(context.Background())
	for _, step := range []func(context.Context) error{s.connect, s.authenticate, s.listen} {
		if err := step(background); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Close ends a server that does not run.
func (s *Server) Close() {
	s.drain()
	s.release()
}

// connect makes the two ways to the shard.
func (s *Server) connect(context.Context) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: s.options.Kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: s.options.Context}).ClientConfig()
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	if s.shard, err = url.Parse(config.Host); err != nil || s.shard.Scheme != "https" || s.shard.Host == "" {
		return fmt.Errorf("--kubeconfig: got server %q, expected an https URL", config.Host)
	}
	config.DisableCompression = true // answers pass as they are
	credentials, err := rest.TransportFor(config)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	bare, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	s.client = &http.Client{Transport: credentials}
	counters := backend.NewMetrics(s.metrics.Registry.MustRegister)
	s.acting = backend.NewForwarder(credentials, impersonation(), counters)
	s.plain = backend.NewForwarder(bare, identity.DefaultHeaderNames(), counters)

	config.Host = s.shard.Scheme + "://" + s.shard.Host
	if s.scrapers, err = scrape.InRoot(config); err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.Host += logicalcluster.Root.Path().URLPath()
	reviews, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	s.reviews = reviews.TokenReviews()
	return nil
}

func (s *Server) authenticate(ctx context.Context) error {
	var config kubeauthenticator.Config
	var err error
	if config.ClientCAContentProvider, err = s.options.ClientCert.GetClientCAContentProvider(); err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	if config.RequestHeaderConfig, err = s.options.RequestHeader.ToAuthenticationRequestHeaderConfig(); err != nil {
		return fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	s.auth, err = identity.NewAuthenticator(ctx, config, nil, identity.GroupFilter{Drop: identity.DefaultDropGroups()})
	if err != nil {
		return err
	}
	if err := servingcert.Default(s.options.SecureServing, "localhost", nil, nil); err != nil {
		return fmt.Errorf("generating a serving certificate: %w", err)
	}
	if err := s.options.SecureServing.ApplyTo(&s.serving); err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	// Both CAs are advertised: of people, and of proxies in front that name people.
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

// listen prepares the audit log.
func (s *Server) listen(context.Context) error {
	s.audit = genericapiserver.NewConfig(codecs())
	if err := s.options.Audit.ApplyTo(s.audit); err != nil {
		return fmt.Errorf("audit flags: %w", err)
	}
	s.audit.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(s.audit)
	return nil
}

// Run serves until the context ends, and then until requests have ended or the shutdown timeout is over. Watches end
// at once.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	work, stopWork := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stopWork()
	if s.options.ProfilerAddress != "" {
		if err := profiles.Serve(work, &running, s.options.ProfilerAddress); err != nil {
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
	s.drain()
	close(stop)
	<-listenerStopped
	<-stopped
	s.client.CloseIdleConnections()
	return nil
}
