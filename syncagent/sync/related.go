package sync

import (
	"errors"
	"slices"

	"k8s.io/client-go/discovery"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/related"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// resolveRelated discovers the related resources on both sides. A related resource that is not served does not prevent the sync of the
// others.
func (s *publicationSync) resolveRelated(workspace discovery.ServerResourcesInterface) ([]syncer.RelatedResource, error) {
	return resolveRelated(s.publication.Spec.Related, s.shared.serviceDiscovery, workspace)
}

func resolveRelated(specs []syncagentv1alpha1.RelatedResourceSpec, service, workspace discovery.ServerResourcesInterface) ([]syncer.RelatedResource, error) {
	var resolved []syncer.RelatedResource
	for _, spec := range specs {
		origin, copied := service, workspace
		if spec.Origin == syncagentv1alpha1.RelatedResourceOriginKcp {
			origin, copied = copied, origin
		}
		r := syncer.RelatedResource{Spec: spec}
		var errs [2]error
		r.Origin, errs[0] = workspaces.Discover(origin, related.OriginResource(spec))
		r.Copy, errs[1] = workspaces.Discover(copied, related.CopyResource(spec))
		for _, err := range errs {
			var notServed *workspaces.NotServedError
			if err != nil && !errors.As(err, &notServed) {
				return nil, err
			}
		}
		r.Unresolved = errors.Join(errs[:]...)
		resolved = append(resolved, r)
	}
	return resolved, nil
}

// sameRelated reports whether two lists have the same resolved related resources.
func sameRelated(a, b []syncer.RelatedResource) bool {
	return slices.EqualFunc(a, b, func(a, b syncer.RelatedResource) bool {
		return a.Origin == b.Origin && a.Copy == b.Copy && (a.Unresolved == nil) == (b.Unresolved == nil)
	})
}

// serviceSide returns the related resource on the service cluster.
func serviceSide(r syncer.RelatedResource) workspaces.Resource {
	if r.Spec.Origin == syncagentv1alpha1.RelatedResourceOriginService {
		return r.Origin
	}
	return r.Copy
}

// workspaceSide returns the related resource in workspaces.
func workspaceSide(r syncer.RelatedResource) workspaces.Resource {
	if r.Spec.Origin == syncagentv1alpha1.RelatedResourceOriginService {
		return r.Copy
	}
	return r.Origin
}
