package client

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// DefaultMaxObjects is the default limit of objects of one shard in a cache.
const DefaultMaxObjects = 100_000

// Resource is a type of objects that cache servers store without a schema.
type Resource struct {
	schema.GroupVersionResource
	// Kind is the kind of its objects; lists are of Kind + "List".
	Kind       string
	Namespaced bool
}

// IsRemoteOnly returns whether shards exchange its objects, which no logical cluster stores.
func (r Resource) IsRemoteOnly() bool { return r.Group == shardingv1alpha1.GroupName }

// IsCached returns whether it is a user's cached resource, "<resource>:<identity>".
func (r Resource) IsCached() bool { return isCached(r.Resource) }

func isCached(resource string) bool { return strings.Contains(resource, ":") }

// GroupVersionKind returns the kind of its objects.
func (r Resource) GroupVersionKind() schema.GroupVersionKind {
	return r.GroupVersion().WithKind(r.Kind)
}

// storedGroups are the stored resources of the contract, and those that only shards of this project publish.
var storedGroups = []struct {
	group, version string
	kinds          map[string]string // of resources of logical clusters
	namespaced     map[string]string // of resources of namespaces; never published
}{
	{group: "apis.kcp.io", version: "v1alpha2", kinds: map[string]string{"apiexports": "APIExport"}},
	{group: "apis.kcp.io", version: "v1alpha1", kinds: map[string]string{
		"apiexportendpointslices": "APIExportEndpointSlice", "apiresourceschemas": "APIResourceSchema", "apiconversions": "APIConversion",
	}},
	{group: "admin.kcp.io", version: "v1alpha1", kinds: map[string]string{"permissionclaimpolicies": "PermissionClaimPolicy"}},
	{group: "core.kcp.io", version: "v1alpha1", kinds: map[string]string{"logicalclusters": "LogicalCluster", "shards": "Shard"}},
	{group: "tenancy.kcp.io", version: "v1alpha1", kinds: map[string]string{
		"workspacetypes": "WorkspaceType", "workspaceauthenticationconfigurations": "WorkspaceAuthenticationConfiguration",
	}},
	{group: "migration.kcp.io", version: "v1alpha1", kinds: map[string]string{"logicalclustermigrations": "LogicalClusterMigration"}},
	{group: "cache.kcp.io", version: "v1alpha1", kinds: map[string]string{
		"cachedobjects": "CachedObject", "clustercachedresources": "ClusterCachedResource",
		"clustercachedresourceendpointslices": "ClusterCachedResourceEndpointSlice",
	}},
	{group: "rbac.authorization.k8s.io", version: "v1",
		kinds:      map[string]string{"clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding"},
		namespaced: map[string]string{"roles": "Role", "rolebindings": "RoleBinding"}},
	{group: "admissionregistration.k8s.io", version: "v1", kinds: map[string]string{
		"mutatingwebhookconfigurations": "MutatingWebhookConfiguration", "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
		"validatingadmissionpolicies": "ValidatingAdmissionPolicy", "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
		"mutatingadmissionpolicies": "MutatingAdmissionPolicy", "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
	}},
	{group: "sharding.kcp.io", version: "v1alpha1", kinds: map[string]string{
		"logicalclusterrequests": "LogicalClusterRequest", "logicalclusterreports": "LogicalClusterReport",
		"exportconsumers": "ExportConsumers", "shardreports": "ShardReport",
		"logicalclustermigrationreports": "LogicalClusterMigrationReport", "workspacecounts": "WorkspaceCount",
	}},
}

// Resources returns the built-in resources of cache servers, in no order. Besides these, users' cached resources are
// addressed as "<resource>:<identity>" in any group and version.
func Resources() []Resource {
	var all []Resource
	for _, g := range storedGroups {
		version := schema.GroupVersion{Group: g.group, Version: g.version}
		for resource, kind := range g.kinds {
			all = append(all, Resource{GroupVersionResource: version.WithResource(resource), Kind: kind})
		}
		for resource, kind := range g.namespaced {
			all = append(all, Resource{GroupVersionResource: version.WithResource(resource), Kind: kind, Namespaced: true})
		}
	}
	return all
}

// OtherVersions returns the resources that are served in another version than they are stored in. Objects are the same
// but for their apiVersion: caches do not convert.
func OtherVersions() []Resource {
	exports := schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexports"}
	return []Resource{{GroupVersionResource: exports, Kind: "APIExport"}}
}

// cachedObjects is the resource that all users' cached resources count as.
var cachedObjects = schema.GroupVersionResource{Group: "cache.kcp.io", Version: "v1alpha1", Resource: "cachedobjects"}

// MetricsGroupResource returns the resource label of metrics. All users' cached resources share one: their names are
// chosen by users, and every name would be a series.
func MetricsGroupResource(gr schema.GroupResource) schema.GroupResource {
	if isCached(gr.Resource) {
		return cachedObjects.GroupResource()
	}
	return gr
}

// MetricsResource is MetricsGroupResource with a version.
func MetricsResource(gvr schema.GroupVersionResource) schema.GroupVersionResource {
	if isCached(gvr.Resource) {
		return cachedObjects
	}
	return gvr
}

// resourcesByGroupResource is the index of FindResource.
var resourcesByGroupResource = sync.OnceValue(func() map[schema.GroupResource]Resource {
	all := map[schema.GroupResource]Resource{}
	for _, resource := range Resources() {
		all[resource.GroupResource()] = resource
	}
	return all
})

// FindResource returns the stored resource with that group and name.
func FindResource(gr schema.GroupResource) (Resource, bool) {
	resource, ok := resourcesByGroupResource()[gr]
	return resource, ok
}
