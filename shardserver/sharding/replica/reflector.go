package replica

import (
	"context"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// run keeps the store up to date until the context ends.
func (s *store) run(ctx context.Context, cache *client.Client) {
	defer s.published.suspend()
	s.mu.Lock()
	from := s.at
	if s.relisting {
		from = client.Position{}
	}
	reflector := cache.NewReflector(s.resource.GroupVersionResource, from, &eventHandler{ctx: ctx, store: s})
	s.reflector = reflector
	s.mu.Unlock()
	reflector.Run(ctx)
}

// retryNow ends the backoff of a reflector that is disconnected.
func (s *store) retryNow() {
	s.mu.RLock()
	reflector := s.reflector
	s.mu.RUnlock()
	if reflector != nil {
		reflector.RetryNow()
	}
}

// relist makes the reflector list again.
func (s *store) relist() {
	s.mu.Lock()
	s.relisting = true
	reflector := s.reflector
	s.mu.Unlock()
	if reflector != nil {
		reflector.Relist()
	}
}
