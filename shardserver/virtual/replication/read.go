package replication

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/cachedresources"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// hiddenAnnotations are set on replicas and name their origin.
var hiddenAnnotations = []string{"kcp.io/shard", "cache.kcp.io/original-resource-version", "cache.kcp.io/original-resource-UID"}

// serveRead serves a read of objects in another logical cluster as if they were in that of the consumer.
func (w *Workspace) serveRead(rw http.ResponseWriter, req *http.Request, info *request.RequestInfo, consumer logicalcluster.Name, exposed *exposedResource) {
	if err := checkRead(req, info, exposed); err != nil {
		w.writeError(rw, req, err)
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
	w.serveProjection(rw, req, info, bound.SchemaUID, crdstorage.Projection{Cluster: consumer}, exposed)
}

// checkRead fails for a request that is not a read of the exposed resource.
func checkRead(req *http.Request, info *request.RequestInfo, exposed *exposedResource) error {
	switch {
	case info.APIGroup != exposed.resource.Group || info.Resource != exposed.resource.Resource || info.Subresource != "" || info.Namespace != "":
		return newNotFoundError(req)
	case !isRead(info.Verb):
		return apierrors.NewMethodNotSupported(exposed.resource, info.Verb)
	}
	return nil
}

// serveProjection serves a read of objects in another logical cluster, with a schema that consumers have bound.
func (w *Workspace) serveProjection(rw http.ResponseWriter, req *http.Request, info *request.RequestInfo, schema types.UID, projection crdstorage.Projection, exposed *exposedResource) {
	req, done := w.terminateWhenRevoked(req, info, projection.Cluster, schema, exposed)
	defer done()
	source, err := w.newObjectSource(req.Context(), exposed, schema)
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	ctx := logicalcluster.With(req.Context(), logicalcluster.Of(exposed.Resource))
	if projection.Audience == nil {
		ctx = storage.WithVersionsOf(ctx, projection.Cluster)
	}
	selector, err := exposed.selector()
	if err != nil {
		w.writeError(rw, req, err)
		return
	}
	if info.Verb == "get" && !selector.Empty() {
		if err := checkSelected(ctx, source, exposed, info.Name, selector); err != nil {
			w.writeError(rw, req, err)
			return
		}
	}
	projection.OmitAnnotations, projection.OmitFields = hiddenAnnotations, cachedresources.OmittedFields(exposed.Resource)
	// The identity that a request may name is that of the export, not of the objects.
	forwarded := virtual.InCluster(req.WithContext(crdstorage.WithProjection(bindings.WithIdentity(ctx, ""), projection)))
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
