// Package install registers kcp's types in a scheme for servers: the same Go type is the stored version and the
// internal version, so that only exports and bindings, which have another version, are ever converted. It also contains
// their defaults. It must not depend on storage.
package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
)

func init() {
	utilruntime.Must(Install(legacyscheme.Scheme))
}

// Install registers the groups of kcp: versions, internal versions, priorities, conversions and defaults. Field
// selectors support metadata.name only, the default of every scheme.
func Install(scheme *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{adminv1alpha1.AddToScheme, corev1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme, topologyv1alpha1.AddToScheme, cachev1alpha1.AddToScheme, migrationv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering kcp's types: %w", err)
		}
	}
	// After the external version, so that the first kind that a scheme returns for a type is the external one.
	scheme.AddKnownTypes(internalVersion(adminv1alpha1.GroupName), &adminv1alpha1.PermissionClaimPolicy{}, &adminv1alpha1.PermissionClaimPolicyList{})
	scheme.AddKnownTypes(internalVersion(corev1alpha1.GroupName),
		&corev1alpha1.LogicalCluster{}, &corev1alpha1.LogicalClusterList{},
		&corev1alpha1.Shard{}, &corev1alpha1.ShardList{})
	scheme.AddKnownTypes(internalVersion(tenancyv1alpha1.GroupName),
		&tenancyv1alpha1.Workspace{}, &tenancyv1alpha1.WorkspaceList{},
		&tenancyv1alpha1.WorkspaceType{}, &tenancyv1alpha1.WorkspaceTypeList{},
		&tenancyv1alpha1.WorkspaceAuthenticationConfiguration{}, &tenancyv1alpha1.WorkspaceAuthenticationConfigurationList{})
	scheme.AddKnownTypes(internalVersion(migrationv1alpha1.GroupName),
		&migrationv1alpha1.LogicalClusterMigration{}, &migrationv1alpha1.LogicalClusterMigrationList{})
	addInternalTopology(scheme)
	for _, version := range []schema.GroupVersion{adminv1alpha1.SchemeGroupVersion, corev1alpha1.SchemeGroupVersion, tenancyv1alpha1.SchemeGroupVersion, topologyv1alpha1.SchemeGroupVersion, cachev1alpha1.SchemeGroupVersion, migrationv1alpha1.SchemeGroupVersion} {
		if err := scheme.SetVersionPriority(version); err != nil {
			return fmt.Errorf("ordering the versions of %s: %w", version.Group, err)
		}
	}
	if err := addAPIs(scheme); err != nil {
		return err
	}
	addDefaults(scheme)
	addCacheDefaults(scheme)
	return nil
}

func internalVersion(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
}
