package cachedresources

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// ResolveResource returns the resource of a ClusterCachedResource as the context's logical cluster serves it. It is nil
// if the resource cannot be cached; reason and message then report why, and what to do.
func ResolveResource(ctx context.Context, registry *storage.Registry, cachedResource *cachev1alpha1.ClusterCachedResource) (resource *storage.Resource, reason, message string, err error) {
	gr := groupResource(cachedResource)
	if _, err := registry.Get(gr); err == nil {
		return nil, cachev1alpha1.ReasonResourceNotSupported, fmt.Sprintf("%s is built in; only resources of a definition or a binding can be cached", gr), nil
	}
	resource, err = registry.Resolve(ctx, gr)
	switch {
	case err != nil:
		return nil, "", "", err
	case resource == nil:
		return nil, cachev1alpha1.ReasonResourceNotFound, fmt.Sprintf("the workspace does not serve %s; define or bind it", gr), nil
	case resource.Namespaced:
		return nil, cachev1alpha1.ReasonResourceNotClusterScoped, fmt.Sprintf("%s is namespaced; only cluster-scoped resources can be cached", gr), nil
	}
	return resource, "", "", nil
}

// Selector returns the selector of the published objects. Only matchLabels is used (contract 4.13).
func Selector(cachedResource *cachev1alpha1.ClusterCachedResource) labels.Selector {
	if cachedResource.Spec.LabelSelector == nil {
		return labels.Everything()
	}
	return labels.SelectorFromSet(cachedResource.Spec.LabelSelector.MatchLabels)
}

// OmittedFields returns the paths of the fields that consumers do not see. They are validated when they are written.
func OmittedFields(cachedResource *cachev1alpha1.ClusterCachedResource) [][]string {
	var paths [][]string
	for path := range strings.SplitSeq(cachedResource.Annotations[cachev1alpha1.OmittedFieldsAnnotationKey], ",") {
		if path = strings.TrimSpace(path); path != "" {
			paths = append(paths, strings.Split(path, "."))
		}
	}
	return paths
}

func groupResource(cachedResource *cachev1alpha1.ClusterCachedResource) schema.GroupResource {
	return schema.GroupResource{Group: cachedResource.Spec.Group, Resource: cachedResource.Spec.Resource}
}

// countObjects returns the number of objects that a ClusterCachedResource selects.
func countObjects(ctx context.Context, resource *storage.Resource, cachedResource *cachev1alpha1.ClusterCachedResource) (int, error) {
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: resource.GVR.Group, Resource: resource.GVR.Resource})
	lister, ok := resource.Store.(rest.Lister)
	if !ok {
		return 0, errors.New("the storage cannot list")
	}
	list, err := lister.List(ctx, &internalversion.ListOptions{LabelSelector: Selector(cachedResource), ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("counting %s: %w", resource.GVR.GroupResource(), err)
	}
	return meta.LenList(list), nil
}
