package dynamic

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// ownCalls is how many of the shard's own requests may wait at once for the webhooks of one logical cluster, in
	// each phase. Controllers have few workers for all logical clusters; a webhook that hangs must not hold them all.
	ownCalls = 2
	// ownPatience is how long such a request waits for its turn before it fails, to be retried by its controller.
	ownPatience = 250 * time.Millisecond
)

// places are those that the shard's own requests take while they are on their way to webhooks, so many for each logical
// cluster, whatever becomes of its configurations meanwhile. An entry lives as long as somebody has a place or waits.
type places struct {
	mu sync.Mutex
	of map[logicalcluster.Name]*place
}

// place is the state of one logical cluster.
type place struct {
	taken chan struct{}
	users int
}

func newPlaces() *places { return &places{of: map[logicalcluster.Name]*place{}} }

// take waits a moment for a place, which the returned function gives back. Fails with ServiceUnavailable.
func (p *places) take(ctx context.Context, cluster logicalcluster.Name) (giveBack func(), err error) {
	of := p.enter(cluster)
	ctx, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	select {
	case of.taken <- struct{}{}:
		return func() {
			<-of.taken
			p.leave(cluster, of)
		}, nil
	case <-ctx.Done():
		p.leave(cluster, of)
		return nil, apierrors.NewServiceUnavailable("the webhooks of the workspace are busy with other requests of the system")
	}
}

func (p *places) enter(cluster logicalcluster.Name) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of[cluster]
	if of == nil {
		of = &place{taken: make(chan struct{}, ownCalls)}
		p.of[cluster] = of
	}
	of.users++
	return of
}

func (p *places) leave(cluster logicalcluster.Name, of *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of.users--; of.users == 0 {
		delete(p.of, cluster)
	}
}
