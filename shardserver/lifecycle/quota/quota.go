// Package quota updates the status of resource quotas in all logical clusters: the number of objects of each limited
// resource. Only object counts are limited, with names "count/<resource>[.<group>]"; other names are stored and
// ignored. Admission rejects requests; the rules that both share are here.
package quota

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/quota/v1/install"
)

// ClusterScopedAnnotation makes a quota of any namespace count and limit the whole logical cluster: all namespaces, and
// cluster-scoped objects.
const ClusterScopedAnnotation = "experimental.quota.kcp.io/cluster-scoped"

// Quotas is the resource of quotas.
var Quotas = schema.GroupResource{Resource: "resourcequotas"}

const countPrefix = "count/"

// CountedResource returns the resource that a name of a quota limits. It returns false for names that are not enforced.
func CountedResource(name core.ResourceName) (schema.GroupResource, bool) {
	counted, ok := strings.CutPrefix(string(name), countPrefix)
	if !ok || counted == "" {
		return schema.GroupResource{}, false
	}
	resource := schema.ParseGroupResource(counted)
	return resource, !IsIgnored(resource)
}

// IsIgnored reports whether the objects of a resource are never counted, as upstream: events, and resources that are
// not stored.
func IsIgnored(resource schema.GroupResource) bool {
	_, ignored := install.DefaultIgnoredResources()[resource]
	return ignored
}

// Covers reports whether a quota counts objects of a namespace; "" are cluster-scoped objects.
func Covers(quota *core.ResourceQuota, namespace string) bool {
	return IsClusterScoped(quota) || (namespace != "" && quota.Namespace == namespace)
}

// IsClusterScoped reports whether a quota limits its whole logical cluster.
func IsClusterScoped(quota *core.ResourceQuota) bool {
	return quota.Annotations[ClusterScopedAnnotation] == "true"
}

// IsScoped reports whether a quota is limited to pods of some kind. Other objects are never in scope.
func IsScoped(quota *core.ResourceQuota) bool {
	return len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil && len(quota.Spec.ScopeSelector.MatchExpressions) > 0
}

// External returns a copy of a quota in the API version of clients.
func External(quota *core.ResourceQuota) (*corev1.ResourceQuota, error) {
	external := &corev1.ResourceQuota{}
	if err := corev1conversion.Convert_core_ResourceQuota_To_v1_ResourceQuota(quota.DeepCopy(), external, nil); err != nil {
		return nil, fmt.Errorf("converting quota %q: %w", quota.Name, err)
	}
	return external, nil
}
