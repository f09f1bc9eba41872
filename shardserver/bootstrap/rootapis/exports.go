// Package rootapis defines the APIs that the logical cluster root exports: the exports, the schemas of their resources
// and their names. It contains data only. Package bootstrap writes them, the registries serve the resources.
package rootapis

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1 "k8s.io/api/core/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// Names of the exports.
const (
	Tenancy   = "tenancy.kcp.io"
	Topology  = "topology.kcp.io"
	Shards    = "shards.core.kcp.io"
	Cache     = "cache.kcp.io"
	Migration = "migration.kcp.io"
)

// Export is one export of root.
type Export struct {
	Name string
	// HasMaximalPermissionPolicy is whether RBAC in root is the maximal permission policy of the export.
	HasMaximalPermissionPolicy bool
	Resources                  []Resource
}

// Resource is a resource of an export.
type Resource struct {
	schema.GroupResource
	// Prefix is the prefix of its schema's name. Consumers see it, so it is that of kcp if the schema is the same.
	Prefix string
}

// SchemaName returns the name of the APIResourceSchema.
func (r Resource) SchemaName() string { return r.Prefix + "." + r.String() }

// Exports returns all exports of root.
func Exports() []Export {
	return []Export{
		{Name: Tenancy, HasMaximalPermissionPolicy: true, Resources: []Resource{
			resource("tenancy.kcp.io", "workspaces", "v260522-2bf05df66"),
			resource("tenancy.kcp.io", "workspacetypes", "v260519-96f2749"),
			resource("tenancy.kcp.io", "workspaceauthenticationconfigurations", "v250827-717cfea84"),
		}},
		{Name: Topology, Resources: []Resource{
			resource("topology.kcp.io", "partitions", "v240903-d6797056a"),
			resource("topology.kcp.io", "partitionsets", "v240903-d6797056a"),
		}},
		{Name: Shards, Resources: []Resource{
			resource("core.kcp.io", "shards", "v260302-ae9fdd9c1"),
		}},
		{Name: Cache, Resources: []Resource{
			resource("cache.kcp.io", "clustercachedresources", "v250920-de0c8484d"),
			resource("cache.kcp.io", "clustercachedresourceendpointslices", "v260804-b35f3bb61"),
		}},
		{Name: Migration, Resources: []Resource{
			resource("migration.kcp.io", "logicalclustermigrations", "v260702-7381341f5"),
			resource("migration.kcp.io", "logicalclusterdumps", "v260702-7381341f5"),
		}},
	}
}

func resource(group, name, prefix string) Resource {
	return Resource{GroupResource: schema.GroupResource{Group: group, Resource: name}, Prefix: prefix}
}

// APIExport returns the APIExport object. Defaults of the API are set explicitly, so that the written object equals the
// stored one.
func (e Export) APIExport() *apisv1alpha2.APIExport {
	export := &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: e.Name},
		Spec: apisv1alpha2.APIExportSpec{
			Identity: &apisv1alpha2.Identity{SecretRef: &corev1.SecretReference{
				Namespace: apisv1alpha2.IdentitySecretNamespace, Name: e.Name,
			}},
		},
	}
	if e.HasMaximalPermissionPolicy {
		export.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
	}
	for _, r := range e.Resources {
		export.Spec.Resources = append(export.Spec.Resources, apisv1alpha2.ResourceSchema{
			Name: r.Resource, Group: r.Group, Schema: r.SchemaName(),
			Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}},
		})
	}
	return export
}
