package replication

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// recheckInterval is the interval between two checks of an open watch.
const recheckInterval = time.Second

// terminateWhenRevoked returns a watch request that ends when the binding of the consumer, if there is only one, is deleted or has another
// schema, or when the slice, its export or the ClusterCachedResource is deleted or changed. Other requests are returned unchanged. Callers must call done at the end of
// the request.
func (w *Workspace) terminateWhenRevoked(req *http.Request, info *request.RequestInfo, consumer logicalcluster.Name, schema types.UID, exposed *exposedResource) (tracked *http.Request, done func()) {
	if info.Verb != "watch" {
		return req, func() {}
	}
	ctx, cancel := context.WithCancel(req.Context())
	go func() {
		defer cancel()
		tick := time.NewTicker(recheckInterval)
		defer tick.Stop()
		for w.isStillExposed(ctx, consumer, schema, exposed) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return req.WithContext(ctx), cancel
}

// isStillExposed reports whether a consumer may still read the resource, with the same schema. It returns true on errors.
func (w *Workspace) isStillExposed(ctx context.Context, consumer logicalcluster.Name, schema types.UID, exposed *exposedResource) bool {
	current, err := w.findExposed(ctx, exposed.cluster, exposed.slice)
	if err != nil {
		return true
	}
	if current == nil || current.Resource.UID != exposed.Resource.UID || current.Export.UID != exposed.Export.UID || current.Resource.Generation != exposed.Resource.Generation || current.selection != exposed.selection {
		return false
	}
	if consumer.Empty() {
		return true // of several consumers; the watch expires when these change
	}
	bound, ok, err := w.getBinding(ctx, consumer, exposed)
	return err != nil || ok && bound.SchemaUID == schema
}
