package storage

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// prompt shortens consistent reads of a watch cache. The stock cache finds out the current revision of etcd and waits
// until it has seen it; but events of other resources move the revision, so that it mostly waits for the progress
// that it asks etcd for every 100 ms. Here etcd is asked at once, and answers within a round trip.
type prompt struct {
	listing
	// asked is the highest revision that progress was asked for.
	asked atomic.Uint64
}

// GetCurrentResourceVersion is what the watch cache calls in a consistent read before it waits.
func (p *prompt) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	current, err := p.listing.GetCurrentResourceVersion(ctx)
	if err != nil {
		return 0, err
	}
	for asked := p.asked.Load(); current > asked; asked = p.asked.Load() {
		if p.asked.CompareAndSwap(asked, current) {
			p.ask()
			break
		}
	}
	return current, nil
}

// ask asks on the stream of the cache's own watch, as the cache does. If it fails, the cache's own asking remains. The
// context is none of a request, because a stream that is opened by asking keeps it.
func (p *prompt) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if utilfeature.DefaultFeatureGate.Enabled(features.SeparateCacheWatchRPC) {
		ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs("source", "cache"))
	}
	_ = p.RequestWatchProgress(ctx)
}
