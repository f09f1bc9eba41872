package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var (
	apiExports                          = apisv1alpha2.Resource("apiexports")
	apiBindings                         = apisv1alpha2.Resource("apibindings")
	apiResourceSchemas                  = apisv1alpha2.Resource("apiresourceschemas")
	apiExportEndpointSlices             = apisv1alpha2.Resource("apiexportendpointslices")
	clusterCachedResources              = cachev1alpha1.Resource("clustercachedresources")
	clusterCachedResourceEndpointSlices = cachev1alpha1.Resource("clustercachedresourceendpointslices")

	logicalClusters = corev1alpha1.Resource("logicalclusters")
	shards          = corev1alpha1.Resource("shards")
	workspaces      = tenancyv1alpha1.Resource("workspaces")
	workspaceTypes  = tenancyv1alpha1.Resource("workspacetypes")
)

// forbid returns a 403 with the object's name.
func forbid(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

// objectOf returns the object of a request in its type. Another type is a programming error of the registry.
func objectOf[T runtime.Object](obj runtime.Object) (T, error) {
	typed, ok := obj.(T)
	if !ok {
		return typed, apierrors.NewInternalError(fmt.Errorf("admission got %T, want %T", obj, typed))
	}
	return typed, nil
}

// permission authorizes users for objects in other logical clusters than the request's.
type permission struct {
	authorizer  authorizer.UnconditionalAuthorizer
	withDeepSAR func(context.Context) context.Context
}

// isAllowed reports whether the user of the request may perform a verb on an object of a logical cluster, without
// requiring access to that logical cluster.
func (p permission) isAllowed(ctx context.Context, a admission.Attributes, cluster logicalcluster.Name, verb, group, version, resource, name string) (bool, error) {
	decision, _, err := p.authorizer.Authorize(p.withDeepSAR(logicalcluster.With(ctx, cluster)), authorizer.AttributesRecord{
		User:            a.GetUserInfo(),
		Verb:            verb,
		APIGroup:        group,
		APIVersion:      version,
		Resource:        resource,
		Name:            name,
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return true, nil
	}
	return false, err
}

// objectsOf returns the new and the old object of an update.
func objectsOf[T runtime.Object](a admission.Attributes) (obj, old T, err error) {
	if obj, err = objectOf[T](a.GetObject()); err != nil {
		return obj, old, err
	}
	old, err = objectOf[T](a.GetOldObject())
	return obj, old, err
}
