// Package proxy is the front proxy of an installation: one address for all logical clusters. It resolves a logical
// cluster to its shard from an index of the shards' own objects (packages shards and index), authenticates the user
// (identity), and forwards the request (backend) as a mapping file defines (mapping). handler.go shows the path of a
// request.
//
// It authorizes nothing but access to its own metrics: shards do. Per workspace it stores index entries only.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/internal/profiling"
	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/inflight"
	"github.com/atoll-dev/atoll/proxy/metrics"
	"github.com/atoll-dev/atoll/proxy/shards"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// indexSource keeps the index in sync: with the shards, or with the shared index that they write.
type indexSource interface {
	Run(ctx context.Context) error
	// WaitForSync blocks until Ready returns nil.
	WaitForSync(ctx context.Context) error
	Ready() error
	// Sources returns the sources of the index, true for those that are synced and connected.
	Sources() map[string]bool
}

// newIndexSource returns the source of the index and, unless it is nil, of the registry of workspace types.
func (c CompletedConfig) newIndexSource(idx *index.Index, types *workspacetypes.Registry) indexSource {
	if c.SharedIndex.Enabled() {
		return shards.NewSharedIndexReader(c.SharedIndex, idx, c.Subset, types)
	}
	return shards.NewWatcher(shards.Config{Root: c.Root, Peers: c.Peers, Shards: c.Shards, Subset: c.Subset, Index: idx, Types: types})
}

// Server is a front proxy that is ready to run.
type Server struct {
	config         CompletedConfig
	index          *index.Index
	shards         indexSource // nil if the mapping file has no entry for the shards
	transports     []*backend.Transport
	authenticator  *identity.Authenticator
	respond        responder
	metrics        *metrics.Metrics
	metricsHandler http.Handler
	handler        http.Handler

	// background is the context of the authenticators' background work; shuttingDown ends long-running requests.
	background     context.Context
	stopBackground context.CancelFunc
	shuttingDown   context.Context
	startShutdown  context.CancelFunc
}

// NewServer reads certificates and builds the handlers. It starts only the background work of the stock authenticators,
// which Run or Close ends.
func NewServer(c CompletedConfig) (*Server, error) {
	s := &Server{config: c, index: index.New(), respond: newResponder()}
	s.background, s.stopBackground = context.WithCancel(context.Background())
	s.shuttingDown, s.startShutdown = context.WithCancel(context.Background())
	if err := s.build(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends a server that does not run.
func (s *Server) Close() {
	s.startShutdown()
	s.stopBackground()
}

func (s *Server) build() error {
	var err error
	if s.authenticator, err = s.config.newAuthenticator(s.background, s.lookupServiceAccount); err != nil {
		return err
	}
	s.metrics = metrics.New()
	s.metrics.Registry.CustomMustRegister(newIndexCollector(s.index), s.config.Certificates)
	s.metricsHandler = s.metrics.Handler()

	r := &router{
		index: s.index, authenticator: s.authenticator, respond: s.respond, inFlight: inflight.NewLimiter(s.config.InFlight),
	}
	if s.config.WorkspaceAuthentication {
		r.types = workspacetypes.New(s.index)
		r.issuers = issuers.New(s.background, s.config.RequiredAudiences, s.config.Authentication.APIAudiences)
	}
	forwarders, err := s.newForwarders()
	if err != nil {
		return err
	}
	for i, entry := range s.config.Mappings {
		if entry.IsShards() {
			forwarders[i] = forwarders[i].WithErrorHandler(s.respond.shardUnavailable)
			r.hasShards = true
			s.shards = s.config.newIndexSource(s.index, r.types)
			s.metrics.Registry.CustomMustRegister(newSourcesCollector(s.shards))
		}
	}
	mux, err := r.newMux(s.config.Mappings, forwarders)
	if err != nil {
		return err
	}
	s.handler = s.newHandler(mux)
	return nil
}

// newForwarders returns a forwarder for each entry of the mapping file. Entries with the same certificates share a
// transport.
func (s *Server) newForwarders() ([]*backend.Forwarder, error) {
	counters := backend.NewMetrics(s.metrics.Registry.MustRegister)
	transports := map[backend.Files]*backend.Transport{}
	var forwarders []*backend.Forwarder
	for _, entry := range s.config.Mappings {
		files := backend.Files{CA: entry.BackendServerCA, Cert: entry.ProxyClientCert, Key: entry.ProxyClientKey}
		transport, ok := transports[files]
		if !ok {
			var err error
			if transport, err = backend.NewTransport(entry.Path, files); err != nil {
				return nil, fmt.Errorf("mapping path %q: %w", entry.Path, err)
			}
			transports[files] = transport
			s.transports = append(s.transports, transport)
		}
		forwarders = append(forwarders, backend.NewForwarder(transport, entry.Headers(), counters))
	}
	return forwarders, nil
}

// Run serves until the context ends, and then until requests have ended or the shutdown timeout has passed. It listens
// once the index is synced. When it returns, all goroutines of the server have ended.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	// The background work outlives ctx: requests in flight need it.
	work, stopWork := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stopWork()

	for _, transport := range s.transports {
		running.Go(func() { transport.Run(work) })
	}
	if s.config.ProfilerAddress != "" {
		if err := profiling.Serve(work, &running, s.config.ProfilerAddress); err != nil {
			return err
		}
	}
	if s.shards != nil {
		if err := s.syncIndex(ctx, work, &running); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return s.serve(ctx)
}

// syncIndex runs the source of the index until work ends. It returns once the index is synced, the source has failed,
// or ctx has ended, which is no error.
func (s *Server) syncIndex(ctx, work context.Context, running *sync.WaitGroup) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	running.Go(func() { cancel(s.shards.Run(work)) })
	err := s.shards.WaitForSync(waiting)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return errors.Join(err, context.Cause(waiting))
}

func (s *Server) serve(ctx context.Context) error {
	stop := make(chan struct{})
	stopped, listenerStopped, err := s.config.Serving.Serve(s.handler, s.config.ShutdownTimeout, stop)
	if err != nil {
		close(stop)
		return fmt.Errorf("serving: %w", err)
	}
	<-ctx.Done()
	klog.InfoS("Shutting down", "timeout", s.config.ShutdownTimeout)
	s.startShutdown()
	close(stop)
	<-listenerStopped
	<-stopped
	return nil
}

// Handler returns the handler with all filters, for servers that listen themselves.
func (s *Server) Handler() http.Handler { return s.handler }

// lookupServiceAccount sends a token to the shard of its logical cluster for review. It is a serviceaccounttokens.Lookup.
func (s *Server) lookupServiceAccount(ctx context.Context, cluster logicalcluster.Name, token string) error {
	route, resolution := s.index.Load().Resolve(cluster.Path())
	switch {
	case resolution == index.NotSynced:
		return serviceaccounttokens.ErrUnavailable
	case resolution != index.Found || route.Shard.BaseURL == nil:
		return errors.New("no shard has its logical cluster")
	}
	config := rest.CopyConfig(s.config.Shards)
	config.Host = route.Shard.BaseURL.String() + cluster.Path().URLPath()
	config.Timeout = 10 * time.Second
	client, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client for token reviews: %w", err)
	}
	var review *authenticationv1.TokenReview
	err = retry.OnError(retry.DefaultBackoff, isDisconnected, func() (err error) {
		review, err = client.TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("reviewing the token at shard %s: %w: %w", route.Shard.Name, serviceaccounttokens.ErrUnavailable, err)
	case !review.Status.Authenticated || !serviceaccounttokens.IsServiceAccountOf(review.Status.User, cluster):
		return errors.New("its shard does not accept it")
	}
	return nil
}

// isDisconnected reports whether a request lost its connection, as it does when a pod of the shard stops. client-go
// itself repeats only requests that change nothing.
func isDisconnected(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) && !os.IsTimeout(err)
}
