// Package proxy is the front proxy of an installation: one address for all logical clusters. It knows from the
// shards' own objects where each of them lives (packages shards and index), says who is asking (identity), and
// passes requests on (backend) as a mapping file tells it (mapping).
//
// It decides nothing about what a user may do: shards do. It keeps nothing per workspace but index entries.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/profiles"
	"github.com/atoll-dev/atoll/proxy/scrape"
	"github.com/atoll-dev/atoll/proxy/shards"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// follower fills the index: from the shards, or from the index that they share.
type follower interface {
	Run(ctx context.Context) error
	WaitForShards(ctx context.Context) error
	Ready() error
	// Sources are where the index comes from, and whether it follows what happens there.
	Sources() map[string]bool
}

// follow returns what fills the index and, unless it is nil, the catalog.
func (c CompletedConfig) follow(idx *index.Index, types *workspacetypes.Catalog) follower {
	if c.SharedIndex.Enabled() {
		return shards.NewShared(c.SharedIndex, idx, c.Subset, types)
	}
	watcher := shards.New(c.Root, c.Shards, idx)
	watcher.Choose(c.Subset)
	if types != nil {
		watcher.FollowTypes(types)
	}
	return watcher
}

// Server is a front proxy that is ready to run.
type Server struct {
	config     CompletedConfig
	index      *index.Index
	shards     follower // nil when nothing is mapped to shards
	transports []*backend.Transport
	auth       *identity.Authenticator
	respond    responder
	metrics    *scrape.Metrics
	page       http.Handler
	http       http.Handler

	// background ends the work that authentication does on the side; draining ends long requests.
	background context.Context
	release    context.CancelFunc
	draining   context.Context
	drain      context.CancelFunc
}

// NewServer reads certificates and builds the handlers. It starts nothing but what stock authenticators start; Run,
// or Close, ends that too.
func NewServer(c CompletedConfig) (*Server, error) {
	s := &Server{config: c, index: index.New(), respond: newResponder()}
	s.background, s.release = context.WithCancel(context.Background())
	s.draining, s.drain = context.WithCancel(context.Background())
	if err := s.build(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends a server that does not run.
func (s *Server) Close() {
	s.drain()
	s.release()
}

func (s *Server) build() error {
	var err error
	if s.auth, err = s.config.authenticator(s.background, s.confirm); err != nil {
		return err
	}
	s.metrics = scrape.New()
	s.metrics.Registry.CustomMustRegister(newIndexCollector(s.index))
	s.page = s.metrics.Page()
	backends := backend.NewMetrics(s.metrics.Registry.MustRegister)

	r := &router{index: s.index, auth: s.auth, respond: s.respond}
	if s.config.WorkspaceAuthentication {
		r.types = workspacetypes.New(s.index)
		r.issuers = issuers.New(s.background, s.config.RequiredAudiences, s.config.Authentication.APIAudiences)
	}
	// Entries with the same certificates share connections.
	shared := map[backend.Files]*backend.Transport{}
	var forwarders []*backend.Forwarder
	for _, entry := range s.config.Mappings {
		files := backend.Files{CA: entry.BackendServerCA, Cert: entry.ProxyClientCert, Key: entry.ProxyClientKey}
		transport, ok := shared[files]
		if !ok {
			if transport, err = backend.NewTransport(entry.Path, files); err != nil {
				return fmt.Errorf("mapping path %q: %w", entry.Path, err)
			}
			shared[files] = transport
			s.transports = append(s.transports, transport)
		}
		forward := backend.NewForwarder(transport, entry.Headers(), backends)
		if entry.Shards() {
			forward = forward.WithFailure(s.respond.absent)
			r.toShards = true
			s.shards = s.config.follow(s.index, r.types)
			s.metrics.Registry.CustomMustRegister(newSourcesCollector(s.shards))
		}
		forwarders = append(forwarders, forward)
	}
	routes, err := r.routes(s.config.Mappings, forwarders)
	if err != nil {
		return err
	}
	s.http = s.handler(routes)
	return nil
}

// Run serves until the context ends, and then until requests have ended or the shutdown timeout is over. It does not
// listen before the shards are known. When it returns, nothing of the server runs any more.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	// Everything in the background outlives ctx: requests that are still being answered need it.
	work, stopWork := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stopWork()

	for _, transport := range s.transports {
		running.Go(func() { transport.Run(work) })
	}
	if s.config.ProfilerAddress != "" {
		if err := profiles.Serve(work, &running, s.config.ProfilerAddress); err != nil {
			return err
		}
	}
	if s.shards != nil {
		failed := make(chan error, 1)
		running.Go(func() { failed <- s.shards.Run(work) })
		waiting, cancel := context.WithCancelCause(ctx)
		running.Go(func() {
			select {
			case err := <-failed:
				cancel(err)
			case <-waiting.Done():
			}
		})
		err := s.shards.WaitForShards(waiting)
		cancel(nil)
		if ctx.Err() != nil {
			return nil // told to stop before it began
		}
		if err != nil {
			return errors.Join(err, context.Cause(waiting))
		}
	}
	return s.serve(ctx)
}

func (s *Server) serve(ctx context.Context) error {
	stop := make(chan struct{})
	stopped, listenerStopped, err := s.config.Serving.Serve(s.http, s.config.ShutdownTimeout, stop)
	if err != nil {
		close(stop)
		return fmt.Errorf("serving: %w", err)
	}
	<-ctx.Done()
	klog.InfoS("Shutting down", "timeout", s.config.ShutdownTimeout)
	s.drain()
	close(stop)
	<-listenerStopped
	<-stopped
	return nil
}

// Handler returns the whole chain, for servers that listen themselves.
func (s *Server) Handler() http.Handler { return s.http }

// confirm asks the shard of the cluster whether it still accepts the token. It is an identity.Lookup.
func (s *Server) confirm(ctx context.Context, cluster logicalcluster.Name, token string) error {
	route, verdict := s.index.Load().Lookup(cluster.Path())
	if verdict != index.Found || route.Shard.BaseURL == nil {
		return errors.New("no shard has its logical cluster")
	}
	config := rest.CopyConfig(s.config.Shards)
	config.Host = route.Shard.BaseURL.String() + cluster.Path().URLPath()
	config.Timeout = 10 * time.Second
	client, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client for token reviews: %w", err)
	}
	review, err := client.TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("asking shard %s: %w", route.Shard.Name, err)
	case !review.Status.Authenticated:
		return errors.New("its shard does not accept it (any more)")
	}
	return nil
}
