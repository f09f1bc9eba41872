package raw

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// settleTimeout is how long the first requests of a storage wait for its watch cache. Beyond it, clients are asked
	// to come again, as the stock watch cache does at once.
	settleTimeout = 3 * time.Second
	settlePoll    = 5 * time.Millisecond
)

// settling is storage whose first lists and watches wait for the watch cache to fill. A definition is often used in the
// moment it is established, which opens its storage; without this its first client would be told to retry.
type settling struct {
	storage.Interface
	settled atomic.Bool
}

// settle waits once in the life of the storage. A watch cache that fills again later does as the stock one does.
func (s *settling) settle(ctx context.Context) {
	if s.settled.Load() {
		return
	}
	// Whether it came in time shows in what follows.
	_ = wait.PollUntilContextTimeout(ctx, settlePoll, settleTimeout, true, func(context.Context) (bool, error) {
		return s.settled.Load() || s.ReadinessCheck() == nil, nil
	})
	s.settled.Store(true)
}

// GetList implements storage.Interface.
func (s *settling) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	s.settle(ctx)
	return s.Interface.GetList(ctx, key, opts, list)
}

// Watch implements storage.Interface.
func (s *settling) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s.settle(ctx)
	return s.Interface.Watch(ctx, key, opts)
}
