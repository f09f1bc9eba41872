package dynamic

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxOwnRequests bounds the shard's own requests that wait at once for the webhooks of one logical cluster, in each
	// phase. Controllers have few workers for all logical clusters; a webhook that hangs must not block all of them.
	maxOwnRequests = 2
	// acquireTimeout is how long such a request waits for the semaphore before it fails. Its controller retries it.
	acquireTimeout = 250 * time.Millisecond
)

// semaphores are semaphores for the shard's own requests to webhooks, one per logical cluster, independent of changes
// of its configurations. An entry exists while a request holds or waits for the semaphore.
type semaphores struct {
	mu        sync.Mutex
	byCluster map[logicalcluster.Name]*semaphore
}

// semaphore is the semaphore of one logical cluster.
type semaphore struct {
	slots chan struct{}
	refs  int
}

func newSemaphores() *semaphores { return &semaphores{byCluster: map[logicalcluster.Name]*semaphore{}} }

// acquire acquires the semaphore of a logical cluster and returns the function that releases it. It waits up to
// acquireTimeout and then returns ServiceUnavailable.
func (s *semaphores) acquire(ctx context.Context, cluster logicalcluster.Name) (release func(), err error) {
	sem := s.addRef(cluster)
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	select {
	case sem.slots <- struct{}{}:
		return func() {
			<-sem.slots
			s.removeRef(cluster, sem)
		}, nil
	case <-ctx.Done():
		s.removeRef(cluster, sem)
		return nil, apierrors.NewServiceUnavailable("the webhooks of the workspace are busy with other requests of the system")
	}
}

func (s *semaphores) addRef(cluster logicalcluster.Name) *semaphore {
	s.mu.Lock()
	defer s.mu.Unlock()
	sem := s.byCluster[cluster]
	if sem == nil {
		sem = &semaphore{slots: make(chan struct{}, maxOwnRequests)}
		s.byCluster[cluster] = sem
	}
	sem.refs++
	return sem
}

func (s *semaphores) removeRef(cluster logicalcluster.Name, sem *semaphore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sem.refs--; sem.refs == 0 {
		delete(s.byCluster, cluster)
	}
}
