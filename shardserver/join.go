package shardserver

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/shardserver/bootstrap"
	"github.com/atoll-dev/atoll/shardserver/sharding/identitystore"
	"github.com/atoll-dev/atoll/shardserver/sharding/join"
)

// hookRegistration is the name of the post-start hook that begins to register the shard in root, checkRegistration that of
// the check of /readyz about it.
const (
	hookRegistration  = "kcp-register-shard"
	checkRegistration = "shard-registration"
)

// origin is what joins a shard that is not root to the one that is.
type origin struct {
	root       *join.Root
	identities join.Identities
	// first tells that the shard had to ask for its identities: it was never part of the installation before.
	first bool
}

// join finds the identities that this shard, which is not root, stores kcp's own APIs by. It returns when it has them; the
// port tells meanwhile why the shard is not there yet.
func (c *Config) join(ctx context.Context, configMaps rest.Storage) (_ *origin, err error) {
	store, ok := configMaps.(join.Store)
	if !ok {
		return nil, fmt.Errorf("the storage of config maps is %T, which cannot hold identities", configMaps)
	}
	config, err := c.options.RootConfig()
	if err != nil {
		return nil, err
	}
	o := &origin{}
	if o.root, err = join.NewRoot(config); err != nil {
		return nil, err
	}
	var waiting *join.Waiting
	var unanswered error
	o.identities, err = join.Resolve(ctx, store, o.root, func(reason error) {
		o.first = true
		if waiting == nil && unanswered == nil {
			waiting, unanswered = join.Wait(c.Generic.SecureServing)
		}
		if waiting != nil {
			waiting.Because(reason)
		}
	})
	if waiting != nil {
		unanswered = waiting.Stop()
	}
	if err == nil && unanswered != nil {
		err = fmt.Errorf("answering on the secure port while waiting for the root shard: %w", unanswered)
	}
	return o, err
}

// addRegistration has a shard that is not root registered in root, in the background. Only a shard that is new to the
// installation waits for it before it is ready: others serve what they have, whether root is there or not.
func (s *Server) addRegistration() error {
	origin := s.config.origin
	if origin == nil {
		return nil // the bootstrap of root registers the root shard
	}
	s.registration = &join.Registration{
		Root:     origin.root,
		Held:     origin.identities,
		Required: origin.first,
		Register: func(ctx context.Context, c client.Client, create bool) error {
			return bootstrap.RegisterShard(ctx, c, s.config.bootstrapOptions(), create)
		},
	}
	s.Generic.AddPostStartHookOrDie(hookRegistration, func(hook genericapiserver.PostStartHookContext) error {
		s.running.Go(func() { s.registration.Run(hook) })
		return nil
	})
	return s.Generic.AddReadyzChecks(healthz.NamedCheck(checkRegistration, func(*http.Request) error { return s.registration.Healthy() }))
}

// identityCacheConfig is what writes down the identities of root's exports gets.
func (s *Server) identityCacheConfig() identitystore.Config {
	config := identitystore.Config{Registry: s.Registry, Client: s.config.clients.Typed, Refused: func(error) {}}
	if origin := s.config.origin; origin != nil {
		config.Held, config.Refused = origin.identities.Needed(), s.registration.Published
	}
	return config
}
