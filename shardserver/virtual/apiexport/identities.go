package apiexport

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// maxIdentities bounds the storages that one request across all consumers reads.
const maxIdentities = 16

// identityResolver finds the identities of the resources that claims without an identity are for: those that consumers have bound. A
// definition of the consumer's own is never claimed.
type identityResolver struct {
	consumers bindingLister
	bound     *bindings.Index
}

// inCluster returns the identity with which a logical cluster has bound a resource.
func (r identityResolver) inCluster(ctx context.Context, cluster logicalcluster.Name, found *apiResource) []string {
	bound, ok := r.bound.Get(logicalcluster.With(ctx, cluster), found.GroupResource)
	if !ok || bound.Virtual {
		return nil
	}
	return []string{bound.Identity}
}

// inAll returns the identities with which the consumers of an export that accept its claim have bound the resource, in order.
func (r identityResolver) inAll(ctx context.Context, export bindings.ExportKey, found *apiResource) ([]string, error) {
	key, value := apiindex.ExportLabel(export)
	all, err := r.consumers.reader.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", labels.SelectorFromSet(labels.Set{key: value}))
	if err != nil {
		return nil, fmt.Errorf("listing the bindings of the export: %w", err)
	}
	identities := sets.New[string]()
	for _, binding := range all {
		if bindsExport(binding, export) && findEffectiveClaim(binding, found.claim) != nil {
			identities.Insert(r.inCluster(ctx, logicalcluster.Of(binding), found)...)
		}
	}
	return sets.List(identities), nil
}

// resolveAgnostic returns the offer of a resource that is claimed without an identity. Without an identity, the offer has no schema: lists are
// empty, and watches stay open. Of several, the schema is that of the first. Resources with virtual storage are not offered.
func (s *apiSet) resolveAgnostic(ctx context.Context, found *apiResource) (*apiResource, error) {
	found.agnostic = true
	var err error
	if s.cluster.IsWildcard() {
		found.identities, err = s.identities.inAll(ctx, s.name, found)
	} else {
		found.identities = s.identities.inCluster(ctx, s.cluster, found)
	}
	if err != nil {
		return nil, err
	}
	result, served := found, []string{}
	for _, identity := range found.identities {
		if len(served) > maxIdentities {
			break
		}
		candidate := *found
		described, err := s.describeClaimed(ctx, &candidate, identity)
		if err != nil {
			return nil, err
		}
		if described == nil || described.virtual {
			continue
		}
		if served = append(served, identity); len(served) == 1 {
			result = described
		}
	}
	result.identities = served
	if !s.cluster.IsWildcard() && len(served) == 1 {
		result.identity = served[0]
	}
	return result, nil
}

// withIdentity returns the request for the objects of one identity.
func (r *resourceRequest) withIdentity(identity string) *resourceRequest {
	one, resource := *r, *r.resource
	resource.identity, resource.agnostic, resource.identities = identity, false, nil
	one.resource = &resource
	return &one
}

// serveAgnostic serves a list or watch across all consumers of a resource that is claimed without an identity.
func (w *workspace) serveAgnostic(rw http.ResponseWriter, req *http.Request, c *resourceRequest, content http.Handler) {
	switch identities := c.resource.identities; {
	case len(identities) == 0:
		w.serveEmpty(rw, req, c)
	case len(identities) == 1:
		w.serveWildcard(rw, req, c.withIdentity(identities[0]), content)
	case len(identities) > maxIdentities:
		w.writeError(rw, req, apierrors.NewBadRequest(fmt.Sprintf("the consumers have bound %s of more than %d exports: list and watch their logical clusters one by one", c.resource.GroupResource, maxIdentities)))
	case c.info.Verb == "watch":
		w.serveJoinedWatch(rw, req, c, content)
	default:
		w.serveJoinedList(rw, req, c, content)
	}
}

// serveEmpty serves a list or watch of a resource that no consumer has bound.
func (w *workspace) serveEmpty(rw http.ResponseWriter, req *http.Request, c *resourceRequest) {
	if c.info.Verb == "watch" {
		w.serveEmptyWatch(rw, req, c)
		return
	}
	w.serveEmptyList(rw, req, c)
}
