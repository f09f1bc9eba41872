package admission

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// clusterCachedResource refuses to copy to the cache what cannot be copied, or is copied already.
type clusterCachedResource struct {
	*admission.Handler
	registry *storage.Registry
	reader   *storage.Reader[*cachev1alpha1.ClusterCachedResource]
}

func newClusterCachedResource(config Config) admission.Interface {
	return &clusterCachedResource{
		Handler:  admission.NewHandler(admission.Create),
		registry: config.Registry,
		reader:   storage.NewReader[*cachev1alpha1.ClusterCachedResource](config.Registry, clusterCachedResources),
	}
}

// Validate implements admission.ValidationInterface.
func (c *clusterCachedResource) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != clusterCachedResources || a.GetSubresource() != "" {
		return nil
	}
	obj, err := objectOf[*cachev1alpha1.ClusterCachedResource](a.GetObject())
	if err != nil {
		return err
	}
	wanted := obj.Spec.GroupVersionResource
	served, err := c.registry.For(ctx, schema.GroupResource{Group: wanted.Group, Resource: wanted.Resource})
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if served != nil && served.Namespaced {
		return forbid(a, "%s is namespaced, only cluster-scoped resources can be cached", served.GVR.GroupResource())
	}
	others, err := c.reader.ListLatest(ctx, "", nil)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	for _, other := range others {
		// One of the same name is refused by storage, as a conflict.
		if other.Spec.GroupVersionResource == wanted && other.Name != obj.Name {
			return forbid(a, "%s.%s.%s is already cached by ClusterCachedResource %q", wanted.Resource, wanted.Version, wanted.Group, other.Name)
		}
	}
	return nil
}
