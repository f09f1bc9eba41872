package dynamic

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// ownCalls bounds the shard's own requests that wait at once for the webhooks of one logical cluster, in each
	// phase. Controllers have few workers for all logical clusters; a webhook that hangs must not block all of them.
	ownCalls = 2
	// ownPatience is how long such a request waits for the semaphore before it fails. Its controller retries it.
	ownPatience = 250 * time.Millisecond
)

// places are semaphores for the shard's own requests to webhooks, one per logical cluster, independent of changes of
// its configurations. An entry exists while a request holds or waits for the semaphore.
type places struct {
	mu sync.Mutex
	of map[logicalcluster.Name]*place
}

// place is the semaphore of one logical cluster.
type place struct {
	taken chan struct{}
	users int
}

func newPlaces() *places { return &places{of: map[logicalcluster.Name]*place{}} }

// take acquires the semaphore of a logical cluster and returns the function that releases it. It waits up to
// ownPatience and then returns ServiceUnavailable.
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
