package apis

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/cachedresources"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// verbBindResource permits publishing a ClusterCachedResource to the consumers of an export in another workspace.
const verbBindResource = "bind"

// clusterCachedResource refuses to cache resources that cannot be cached or are cached already, and to publish the
// cached objects of another workspace without permission.
type clusterCachedResource struct {
	*admission.Handler
	registry   *storage.Registry
	reader     *storage.Reader[*cachev1alpha1.ClusterCachedResource]
	locate     func(ctx context.Context, path, name string) (logicalcluster.Name, error)
	permission rules.Permission
}

// NewClusterCachedResource returns the plug-in apis.kcp.io/ClusterCachedResource.
func NewClusterCachedResource(config rules.Config) admission.Interface {
	return &clusterCachedResource{
		Handler:  admission.NewHandler(admission.Create),
		registry: config.Registry,
		reader:   storage.NewReader[*cachev1alpha1.ClusterCachedResource](config.Registry, rules.ClusterCachedResources),
		locate:   cachedresources.NewResourceResolver(config.Registry, config.Types).Locate, permission: rules.NewPermission(config),
	}
}

// Validate implements admission.ValidationInterface.
func (c *clusterCachedResource) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch {
	case a.GetSubresource() != "":
		return nil
	case a.GetResource().GroupResource() == rules.ClusterCachedResourceEndpointSlices:
		return c.validateSlice(ctx, a)
	case a.GetResource().GroupResource() != rules.ClusterCachedResources:
		return nil
	}
	obj, err := rules.ObjectOf[*cachev1alpha1.ClusterCachedResource](a.GetObject())
	if err != nil {
		return err
	}
	gvr := obj.Spec.GroupVersionResource
	served, err := c.registry.Resolve(ctx, schema.GroupResource{Group: gvr.Group, Resource: gvr.Resource})
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if served != nil && served.Namespaced {
		return rules.Forbid(a, "%s is namespaced, only cluster-scoped resources can be cached", served.GVR.GroupResource())
	}
	others, err := c.reader.ListLatest(ctx, "", nil)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	for _, other := range others {
		// An object of the same name is refused by storage, as a conflict.
		if other.Spec.GroupVersionResource == gvr && other.Name != obj.Name {
			return rules.Forbid(a, "%s.%s.%s is already cached by ClusterCachedResource %q", gvr.Resource, gvr.Version, gvr.Group, other.Name)
		}
	}
	return nil
}

// validateSlice authorizes a slice in the workspace that provides the objects, if that is another one: the identity
// hash that an export must contain is not a secret. The reference of a slice is immutable, so it is authorized once.
// The error is the same if the user is not permitted and if the referenced object does not exist.
func (c *clusterCachedResource) validateSlice(ctx context.Context, a admission.Attributes) error {
	slice, err := rules.ObjectOf[*cachev1alpha1.ClusterCachedResourceEndpointSlice](a.GetObject())
	if err != nil {
		return err
	}
	ref := slice.Spec.ClusterCachedResource
	own, ok := logicalcluster.From(ctx)
	if !ok {
		return apierrors.NewInternalError(rules.ErrNoCluster)
	}
	if ref.Path == "" || ref.Path == own.String() {
		return nil
	}
	refused := rules.Forbid(a, "no permission to bind ClusterCachedResource %s:%s", ref.Path, ref.Name)
	cluster, err := c.locate(ctx, ref.Path, ref.Name)
	if storage.IsNotSynced(err) {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the location of ClusterCachedResource %s:%s is not synced yet", ref.Path, ref.Name))
	}
	if err != nil || cluster.Empty() {
		return refused
	}
	if cluster == own {
		return nil
	}
	allowed, err := c.permission.IsAllowed(ctx, a, cluster, verbBindResource, cachev1alpha1.GroupName, cachev1alpha1.SchemeGroupVersion.Version, rules.ClusterCachedResources.Resource, ref.Name)
	if err != nil || !allowed {
		return refused
	}
	return nil
}
