package replication

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// lookAgain is how often an open watch is asked whether it may go on.
const lookAgain = time.Second

// whileShown returns a request that ends when a consumer is no longer shown what it watches: it has bound something else,
// or the slice, its export or the offer behind it has gone or changed. Other requests than watches are left alone. Call
// done with the end of the request.
func (w *Workspace) whileShown(req *http.Request, info *request.RequestInfo, consumer logicalcluster.Name, what *shown) (lasting *http.Request, done func()) {
	if info.Verb != "watch" {
		return req, func() {}
	}
	ctx, cancel := context.WithCancel(req.Context())
	go func() {
		defer cancel()
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		for w.still(ctx, consumer, what) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return req.WithContext(ctx), cancel
}

// still tells whether a consumer is shown what it was. It is, as long as nobody knows better.
func (w *Workspace) still(ctx context.Context, consumer logicalcluster.Name, what *shown) bool {
	now, err := w.find(ctx, what.cluster, what.slice)
	if err != nil {
		return true
	}
	if now == nil || now.Resource.UID != what.Resource.UID || now.Export.UID != what.Export.UID || now.Resource.Generation != what.Resource.Generation {
		return false
	}
	_, bound, err := w.binds(ctx, consumer, what)
	return bound || err != nil
}
