// Package quota keeps the status of resource quotas true, in all logical clusters: how many objects there are of what a
// quota limits. Only numbers of objects are limited, by names "count/<resource>[.<group>]"; other names are stored and
// never looked at. What refuses a request is admission; the rules that both share are here.
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

// ClusterScopedAnnotation makes a quota, in whatever namespace, count and limit the whole logical cluster: all
// namespaces, and what lives in none.
const ClusterScopedAnnotation = "experimental.quota.kcp.io/cluster-scoped"

// Quotas is the resource.
var Quotas = schema.GroupResource{Resource: "resourcequotas"}

const countPrefix = "count/"

// CountedResource returns what a name of a quota limits the number of. It returns false for names that limit nothing here.
func CountedResource(name core.ResourceName) (schema.GroupResource, bool) {
	counted, ok := strings.CutPrefix(string(name), countPrefix)
	if !ok || counted == "" {
		return schema.GroupResource{}, false
	}
	resource := schema.ParseGroupResource(counted)
	return resource, !IsIgnored(resource)
}

// IsIgnored tells whether the objects of a resource are never counted, as upstream: events, and what is not stored.
func IsIgnored(resource schema.GroupResource) bool {
	_, ignored := install.DefaultIgnoredResources()[resource]
	return ignored
}

// Covers tells whether a quota counts objects of a namespace (empty: those that live in none).
func Covers(quota *core.ResourceQuota, namespace string) bool {
	return IsClusterScoped(quota) || (namespace != "" && quota.Namespace == namespace)
}

// IsClusterScoped tells whether a quota is about its whole logical cluster.
func IsClusterScoped(quota *core.ResourceQuota) bool {
	return quota.Annotations[ClusterScopedAnnotation] == "true"
}

// IsScoped tells whether a quota is narrowed to pods of some kind. Other objects are never in scope.
func IsScoped(quota *core.ResourceQuota) bool {
	return len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil && len(quota.Spec.ScopeSelector.MatchExpressions) > 0
}

// External returns a copy of a quota as clients see it.
func External(quota *core.ResourceQuota) (*corev1.ResourceQuota, error) {
	external := &corev1.ResourceQuota{}
	if err := corev1conversion.Convert_core_ResourceQuota_To_v1_ResourceQuota(quota.DeepCopy(), external, nil); err != nil {
		return nil, fmt.Errorf("converting quota %q: %w", quota.Name, err)
	}
	return external, nil
}
