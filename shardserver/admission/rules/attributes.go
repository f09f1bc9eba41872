package rules

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Resources that plug-ins are about.
var (
	APIExports                          = apisv1alpha2.Resource("apiexports")
	APIBindings                         = apisv1alpha2.Resource("apibindings")
	APIResourceSchemas                  = apisv1alpha2.Resource("apiresourceschemas")
	APIExportEndpointSlices             = apisv1alpha2.Resource("apiexportendpointslices")
	ClusterCachedResources              = cachev1alpha1.Resource("clustercachedresources")
	ClusterCachedResourceEndpointSlices = cachev1alpha1.Resource("clustercachedresourceendpointslices")

	LogicalClusters = corev1alpha1.Resource("logicalclusters")
	Shards          = corev1alpha1.Resource("shards")
	Workspaces      = tenancyv1alpha1.Resource("workspaces")
	WorkspaceTypes  = tenancyv1alpha1.Resource("workspacetypes")

	Namespaces = schema.GroupResource{Resource: "namespaces"}
)

// Forbid returns a 403 with the object's name.
func Forbid(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

// Retry is the answer to a request whose validation finds what its mutation did not find yet, because a cache or a replica has received it
// meanwhile. Clients repeat it on their own, as the header Retry-After says.
func Retry(a admission.Attributes, missing string) error {
	return apierrors.NewTooManyRequests(fmt.Sprintf("unable to %s %s %q: %s has changed while the request was processed; try again",
		strings.ToLower(string(a.GetOperation())), a.GetResource().GroupResource(), a.GetName(), missing), 1)
}

// ObjectOf returns the object of a request in its type. Another type is a programming error of the registry.
func ObjectOf[T runtime.Object](obj runtime.Object) (T, error) {
	typed, ok := obj.(T)
	if !ok {
		return typed, apierrors.NewInternalError(fmt.Errorf("admission got %T, want %T", obj, typed))
	}
	return typed, nil
}

// Permission authorizes users for objects in other logical clusters than the request's.
type Permission struct {
	authorizer  authorizer.UnconditionalAuthorizer
	withDeepSAR func(context.Context) context.Context
}

// NewPermission returns the permission that a configuration describes.
func NewPermission(config Config) Permission {
	return Permission{config.Authorizer, config.WithDeepSAR}
}

// IsAllowed reports whether the user of the request may perform a verb on an object of a logical cluster, without
// requiring access to that logical cluster.
func (p Permission) IsAllowed(ctx context.Context, a admission.Attributes, cluster logicalcluster.Name, verb, group, version, resource, name string) (bool, error) {
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

// ObjectsOf returns the new and the old object of an update.
func ObjectsOf[T runtime.Object](a admission.Attributes) (obj, old T, err error) {
	if obj, err = ObjectOf[T](a.GetObject()); err != nil {
		return obj, old, err
	}
	old, err = ObjectOf[T](a.GetOldObject())
	return obj, old, err
}
