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

// hidden are annotations that tell where an object was copied from.
var hidden = []string{"kcp.io/shard", "cache.kcp.io/original-resource-version", "cache.kcp.io/original-resource-UID"}

// read serves objects to a consumer: from the logical cluster that offers them, as if they were in that of the consumer.
func (w *Workspace) read(rw http.ResponseWriter, req *http.Request, info *request.RequestInfo, consumer logicalcluster.Name, what *shown) {
	if info.APIGroup != what.resource.Group || info.Resource != what.resource.Resource || info.Subresource != "" || info.Namespace != "" {
		w.fail(rw, req, notFound(req))
		return
	}
	if !isRead(info.Verb) {
		w.fail(rw, req, apierrors.NewMethodNotSupported(what.resource, info.Verb))
		return
	}
	bound, is, err := w.binds(req.Context(), consumer, what)
	if err == nil && !is {
		err = apierrors.NewForbidden(what.resource, info.Name, fmt.Errorf("it is not bound in %q", consumer))
	}
	if err != nil {
		w.fail(rw, req, err)
		return
	}
	req, done := w.whileShown(req, info, consumer, what)
	defer done()
	from, err := w.from(req.Context(), what, bound.SchemaUID)
	if err != nil {
		w.fail(rw, req, err)
		return
	}
	ctx := logicalcluster.With(req.Context(), logicalcluster.Of(what.Resource))
	selector := cachedresources.Selector(what.Resource)
	if info.Verb == "get" && !selector.Empty() {
		if err := selected(ctx, from, what, info.Name, selector); err != nil {
			w.fail(rw, req, err)
			return
		}
	}
	inside := virtual.Inside(req.WithContext(crdstorage.PresentedIn(ctx, consumer, hidden...)))
	if inside, err = selecting(inside, info.Verb, selector); err == nil {
		err = from.serve(rw, inside)
	}
	if err != nil {
		w.fail(rw, req, err)
	}
}

// selected fails for an object that is not offered.
func selected(ctx context.Context, from origin, what *shown, name string, selector labels.Selector) error {
	found, err := from.labels(ctx, name)
	if err == nil && !selector.Matches(found) {
		err = apierrors.NewNotFound(what.resource, name)
	}
	return err
}

// selecting returns a request for what is offered, of what it asks for.
func selecting(req *http.Request, verb string, selector labels.Selector) (*http.Request, error) {
	requirements, _ := selector.Requirements()
	if verb == "get" || len(requirements) == 0 {
		return req, nil
	}
	return virtual.Selecting(req, requirements...)
}
