package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Annotations of ClusterCachedResources.
const (
	// ResourceKindAnnotationKey contains the kind of the published objects.
	ResourceKindAnnotationKey = "cache.kcp.io/resource-kind"
	// ResourceScopeAnnotationKey contains the scope of the published objects, "Cluster" or "Namespaced".
	ResourceScopeAnnotationKey = "cache.kcp.io/resource-scope"
	// OmittedFieldsAnnotationKey contains fields that consumers do not see, separated by commas, such as
	// "spec.internal,status.node". It is set by users. It is an addition of Atoll.
	OmittedFieldsAnnotationKey = "cache.kcp.io/omitted-fields"
)

// LabelSelectorAnnotationKey contains, on a ClusterCachedResourceEndpointSlice, a label selector such as "tier!=premium": of the published
// objects, consumers of the export see only those that it matches. It is set by users. It is an addition of Atoll.
const LabelSelectorAnnotationKey = "cache.kcp.io/label-selector"

// ClusterCachedResourceFinalizer prevents the removal of a ClusterCachedResource until its objects are removed from the
// cache.
const ClusterCachedResourceFinalizer = "cache.kcp.io/clustercachedresource"

// Condition types.
const (
	// ResourceValid indicates that the resource of a ClusterCachedResource, or the ClusterCachedResource of a
	// ClusterCachedResourceEndpointSlice, exists and can be published.
	ResourceValid conditionsv1alpha1.Type = "ResourceValid"
	// ReplicationStarted indicates that the objects of a ClusterCachedResource are being copied to the cache.
	ReplicationStarted conditionsv1alpha1.Type = "ReplicationStarted"
	// IdentityValid indicates that the Secret with the identity exists and is unchanged.
	IdentityValid conditionsv1alpha1.Type = "IdentityValid"
	// APIExportValid indicates that the referenced APIExport exists and references the
	// ClusterCachedResourceEndpointSlice.
	APIExportValid conditionsv1alpha1.Type = "APIExportValid"
	// PartitionValid indicates that the referenced Partition exists and selects shards.
	PartitionValid conditionsv1alpha1.Type = "PartitionValid"
)

// Reasons of conditions that are false.
const (
	// ReasonResourceNotClusterScoped indicates that the resource is namespaced.
	ReasonResourceNotClusterScoped = "ResourceNotClusterScoped"
	// ReasonResourceNotFound indicates that the resource is not served in the workspace.
	ReasonResourceNotFound = "ResourceNotFound"
	// ReasonResourceNotSupported indicates that the resource is a built-in resource.
	ReasonResourceNotSupported = "ResourceNotSupported"
	// ReasonNotReady indicates that another condition must be True first.
	ReasonNotReady = "NotReady"
	// ReasonDeleting indicates that the ClusterCachedResource is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonClusterCachedResourceNotFound indicates that the referenced ClusterCachedResource does not exist.
	ReasonClusterCachedResourceNotFound = "ClusterCachedResourceNotFound"
	// ReasonAPIExportInvalidReference indicates that the referenced APIExport does not exist or does not reference the
	// ClusterCachedResourceEndpointSlice.
	ReasonAPIExportInvalidReference = "APIExportInvalidReference"
	// ReasonPartitionInvalidReference indicates that the referenced Partition does not exist or is not valid.
	ReasonPartitionInvalidReference = "PartitionInvalidReference"
	// ReasonIdentityGenerationFailed indicates that the Secret with the identity could not be created.
	ReasonIdentityGenerationFailed = "IdentityGenerationFailed"
	// ReasonIdentityVerificationFailed indicates that the Secret with the identity is missing or has changed.
	ReasonIdentityVerificationFailed = "IdentityVerificationFailed"
	// ReasonInternalError indicates that the condition could not be determined because of an error.
	ReasonInternalError = "InternalError"
)
