package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Annotations of ClusterCachedResources.
const (
	// ResourceKindAnnotationKey holds the kind of the objects that are offered.
	ResourceKindAnnotationKey = "cache.kcp.io/resource-kind"
	// ResourceScopeAnnotationKey holds their scope, "Cluster" or "Namespaced".
	ResourceScopeAnnotationKey = "cache.kcp.io/resource-scope"
)

// ClusterCachedResourceFinalizer stands on a ClusterCachedResource until its copies are gone from the cache.
const ClusterCachedResourceFinalizer = "cache.kcp.io/clustercachedresource"

// Condition types.
const (
	// ResourceValid: what a ClusterCachedResource offers, or a slice refers to, exists and can be offered.
	ResourceValid conditionsv1alpha1.Type = "ResourceValid"
	// ReplicationStarted: the objects of a ClusterCachedResource are being copied to the cache.
	ReplicationStarted conditionsv1alpha1.Type = "ReplicationStarted"
	// IdentityValid: the secret that proves who offers the resource exists and is the one of the beginning.
	IdentityValid conditionsv1alpha1.Type = "IdentityValid"
	// APIExportValid: the export that a slice refers to exists, and refers to the slice.
	APIExportValid conditionsv1alpha1.Type = "APIExportValid"
	// PartitionValid: the partition that a slice refers to exists and selects shards.
	PartitionValid conditionsv1alpha1.Type = "PartitionValid"
)

// Reasons of conditions that are false.
const (
	// ReasonResourceNotClusterScoped: objects of the resource belong to namespaces.
	ReasonResourceNotClusterScoped = "ResourceNotClusterScoped"
	// ReasonResourceNotFound: the workspace does not serve the resource.
	ReasonResourceNotFound = "ResourceNotFound"
	// ReasonResourceNotSupported: the resource is built in.
	ReasonResourceNotSupported = "ResourceNotSupported"
	// ReasonNotReady: another condition has to be true before.
	ReasonNotReady = "NotReady"
	// ReasonDeleting: the ClusterCachedResource is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonClusterCachedResourceNotFound: the ClusterCachedResource of a slice does not exist.
	ReasonClusterCachedResourceNotFound = "ClusterCachedResourceNotFound"
	// ReasonAPIExportInvalidReference: the export does not exist, or does not refer to the slice.
	ReasonAPIExportInvalidReference = "APIExportInvalidReference"
	// ReasonPartitionInvalidReference: the partition does not exist or is not valid.
	ReasonPartitionInvalidReference = "PartitionInvalidReference"
	// ReasonIdentityGenerationFailed: the secret of the identity could not be made.
	ReasonIdentityGenerationFailed = "IdentityGenerationFailed"
	// ReasonIdentityVerificationFailed: the secret is missing, or another than it was.
	ReasonIdentityVerificationFailed = "IdentityVerificationFailed"
	// ReasonInternalError: finding out met an error.
	ReasonInternalError = "InternalError"
)
