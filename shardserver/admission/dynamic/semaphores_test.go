package dynamic

import (
	"context"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestSemaphores(t *testing.T) {
	own, loud, quiet := newSemaphores(), logicalcluster.MustParseName("loud"), logicalcluster.MustParseName("quiet")
	var mu sync.Mutex
	var leaves []func()
	refused := 0
	var requests sync.WaitGroup
	for range 8 {
		requests.Go(func() {
			leave, err := own.acquire(t.Context(), loud)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				leaves = append(leaves, leave)
			case apierrors.IsServiceUnavailable(err):
				refused++
			default:
				t.Errorf("got %v", err)
			}
		})
	}
	requests.Wait()
	if len(leaves) != maxOwnRequests || refused != 8-maxOwnRequests {
		t.Errorf("%d acquired the semaphore, %d were rejected", len(leaves), refused)
	}
	leave, err := own.acquire(t.Context(), quiet)
	if err != nil {
		t.Fatalf("another logical cluster: %v", err)
	}
	leave()
	gone, end := context.WithCancel(t.Context())
	end()
	if _, err := own.acquire(gone, loud); err == nil {
		t.Error("a request that has ended acquired the semaphore")
	}
	for _, leave := range leaves {
		leave()
	}
	if len(own.byCluster) != 0 {
		t.Errorf("%d logical clusters have a semaphore", len(own.byCluster))
	}
}
