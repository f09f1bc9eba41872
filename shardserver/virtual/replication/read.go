package replication

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/cachedresources"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// hiddenAnnotations are set on replicas and name their origin.
var hiddenAnnotations = []string{"kcp.io/shard", "cache.kcp.io/original-resource-version", "cache.kcp.io/original-resource-UID"}

// serveRead serves a read of objects in another logical cluster as if they were in that of the consumer.
func (w *Workspace) serveRead(rw http.ResponseWriter, req *http.Request, info *request.RequestInfo, consumer logicalcluster.Name, exposed *exposedResource) {
	if info.APIGroup != exposed.resource.Group || info.Resource != exposed.resource.Resource || info.Subresource != "" || info.Namespace != "" {
		w.writeError(rw, req, newNotFoundError(req))
		return
	}
	if !isRead(info.Verb) {
		w.writeError(rw, req, apierrors.NewMethodNotSupported(exposed.resource, info.Verb))
		return
	}
	bound, ok, err := w.getBinding(req.Context(), consumer, exposed)
	if err == nil && !ok {
		err = apierrors.NewForbidden(exposed.resource, info.Name, fmt.Errorf("it is not bound in %q", consumer))
	}
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	req, done := w.terminateWhenRevoked(req, info, consumer, exposed)
	defer done()
	source, err := w.newObjectSource(req.Context(), exposed, bound.SchemaUID)
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	ctx := logicalcluster.With(req.Context(), logicalcluster.Of(exposed.Resource))
	selector := cachedresources.Selector(exposed.Resource)
	if info.Verb == "get" && !selector.Empty() {
		if err := checkSelected(ctx, source, exposed, info.Name, selector); err != nil {
			w.writeError(rw, req, err)
			return
		}
	}
	forwarded := virtual.InCluster(req.WithContext(crdstorage.WithProjection(ctx, consumer, hiddenAnnotations...)))
	if forwarded, err = withSelector(forwarded, info.Verb, selector); err == nil {
		err = source.serve(rw, forwarded)
	}
	if err != nil {
		w.writeError(rw, req, err)
	}
}

// checkSelected fails with NotFound for an object that the selector does not match.
func checkSelected(ctx context.Context, source objectSource, exposed *exposedResource, name string, selector labels.Selector) error {
	found, err := source.getLabels(ctx, name)
	if err == nil && !selector.Matches(found) {
		err = apierrors.NewNotFound(exposed.resource, name)
	}
	return err
}

// withSelector adds the selector to a list or watch request.
func withSelector(req *http.Request, verb string, selector labels.Selector) (*http.Request, error) {
	requirements, _ := selector.Requirements()
	if verb == "get" || len(requirements) == 0 {
		return req, nil
	}
	return virtual.WithLabelRequirements(req, requirements...)
}
