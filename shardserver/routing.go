package shardserver

import (
	"context"

	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/shardserver/sharding/routing"
)

// routingTasks write what is on this shard to the index that front proxies share, where there is one.
func (s *Server) routingTasks() []func(context.Context) {
	o := s.options.SharedIndex
	if !o.Enabled() {
		return nil
	}
	source := routing.NewSource(s.Registry, s.options.Shard.Name)
	return []func(context.Context){sharedindex.NewWriter(o, s.options.Shard.Name, source).Run}
}
