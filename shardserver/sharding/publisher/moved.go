package publisher

import (
	"context"
	"errors"
	"fmt"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
)

// IsPublished reports whether the cache has every object of a logical cluster that this shard publishes unchanged, in its current
// state. Objects that the cache refuses because of their content do not count.
func (p *Publisher) IsPublished(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	ctx = logicalcluster.With(ctx, cluster)
	for _, source := range p.cfg.Sources {
		if source.List == nil {
			continue
		}
		keys, err := source.List(ctx)
		if err != nil {
			return false, fmt.Errorf("listing %s of logical cluster %q: %w", source.Resource, cluster, err)
		}
		for _, key := range keys {
			if published, err := p.isObjectPublished(ctx, source, key); err != nil || !published {
				return false, err
			}
		}
	}
	return true, nil
}

func (p *Publisher) isObjectPublished(ctx context.Context, source Source, key controller.Request) (bool, error) {
	desired, err := p.desired(ctx, source, key)
	if errors.Is(err, ErrUnchanged) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	current, exists, known := p.cfg.Informer.Published(source.Resource, p.keyOf(key))
	if !known || desired == nil {
		return known && !exists, nil
	}
	digest, err := replica.DigestOf(desired.Object)
	if err != nil {
		return false, err
	}
	return exists && current.Digest == digest || p.isRefused(item{source.Resource, key}), nil
}

// isRefused reports whether the cache has refused the current state of an object.
func (p *Publisher) isRefused(obj item) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending[obj].refused
}
