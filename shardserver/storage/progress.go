package storage

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// progressRequester shortens consistent reads of a watch cache. The stock cache reads the current revision of etcd and
// waits until it has observed it; but writes to other resources advance the revision, so that it mostly waits for the
// progress notification that it requests every 100 ms. progressRequester requests one at once, which takes a round
// trip.
type progressRequester struct {
	noWatchList
	// requested is the highest revision for which progress was requested.
	requested atomic.Uint64
}

// GetCurrentResourceVersion implements storage.Interface. The watch cache calls it in a consistent read before it
// waits.
func (p *progressRequester) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	current, err := p.noWatchList.GetCurrentResourceVersion(ctx)
	if err != nil {
		return 0, err
	}
	for requested := p.requested.Load(); current > requested; requested = p.requested.Load() {
		if p.requested.CompareAndSwap(requested, current) {
			p.requestProgress()
			break
		}
	}
	return current, nil
}

// requestProgress requests progress on the gRPC stream of the cache's own watch, as the cache does. If it fails, the
// periodic requests of the cache remain. The context is not that of a request, because a stream that this call opens
// keeps it.
func (p *progressRequester) requestProgress() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if utilfeature.DefaultFeatureGate.Enabled(features.SeparateCacheWatchRPC) {
		ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs("source", "cache"))
	}
	_ = p.RequestWatchProgress(ctx)
}
