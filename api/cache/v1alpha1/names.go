package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Annotations of ClusterCachedResources.
const (
	// ResourceKindAnnotationKey contains the kind of the published objects.
	ResourceKindAnnotationKey = "cache.kcp.io/resource-kind"
	// ResourceScopeAnnotationKey contains their scope, "Cluster" or "Namespaced".
	ResourceScopeAnnotationKey = "cache.kcp.io/resource-scope"
)

// ClusterCachedResourceFinalizer remains on a ClusterCachedResource until its objects are removed from the cache.
const ClusterCachedResourceFinalizer = "cache.kcp.io/clustercachedresource"

// Condition types.
const (
	// ResourceValid: the resource of a ClusterCachedResource, or the ClusterCachedResource of a slice, exists and can
	// be published.
	ResourceValid conditionsv1alpha1.Type = "ResourceValid"
	// ReplicationStarted: the objects of a ClusterCachedResource are being copied to the cache.
	ReplicationStarted conditionsv1alpha1.Type = "ReplicationStarted"
	// IdentityValid: the secret with the identity exists and is unchanged.
	IdentityValid conditionsv1alpha1.Type = "IdentityValid"
	// APIExportValid: the export that a slice refers to exists, and refers to the slice.
	APIExportValid conditionsv1alpha1.Type = "APIExportValid"
	// PartitionValid: the partition that a slice refers to exists and selects shards.
	PartitionValid conditionsv1alpha1.Type = "PartitionValid"
)

// Reasons of conditions that are false.
const (
	// ReasonResourceNotClusterScoped: the resource is namespaced.
	ReasonResourceNotClusterScoped = "ResourceNotClusterScoped"
	// ReasonResourceNotFound: the workspace does not serve the resource.
	ReasonResourceNotFound = "ResourceNotFound"
	// ReasonResourceNotSupported: the resource is built in.
	ReasonResourceNotSupported = "ResourceNotSupported"
	// ReasonNotReady: another condition has to be True first.
	ReasonNotReady = "NotReady"
	// ReasonDeleting: the ClusterCachedResource is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonClusterCachedResourceNotFound: the ClusterCachedResource of a slice does not exist.
	ReasonClusterCachedResourceNotFound = "ClusterCachedResourceNotFound"
	// ReasonAPIExportInvalidReference: the export does not exist, or does not refer to the slice.
	ReasonAPIExportInvalidReference = "APIExportInvalidReference"
	// ReasonPartitionInvalidReference: the partition does not exist or is not valid.
	ReasonPartitionInvalidReference = "PartitionInvalidReference"
	// ReasonIdentityGenerationFailed: the secret with the identity could not be created.
	ReasonIdentityGenerationFailed = "IdentityGenerationFailed"
	// ReasonIdentityVerificationFailed: the secret is missing or has changed.
	ReasonIdentityVerificationFailed = "IdentityVerificationFailed"
	// ReasonInternalError: the condition could not be determined because of an error.
	ReasonInternalError = "InternalError"
)
