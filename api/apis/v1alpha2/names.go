package v1alpha2

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Annotations of CustomResourceDefinitions that are created from APIResourceSchemas.
const (
	// BoundCRDAnnotationKey marks a CustomResourceDefinition that was created from an APIResourceSchema. The value is
	// empty.
	BoundCRDAnnotationKey = "apis.kcp.io/bound-crd"
	// SchemaClusterAnnotationKey contains the logical cluster of the APIResourceSchema.
	SchemaClusterAnnotationKey = "apis.kcp.io/schema-cluster"
	// SchemaNameAnnotationKey contains the name of the APIResourceSchema.
	SchemaNameAnnotationKey = "apis.kcp.io/schema-name"
	// IdentityAnnotationKey contains the identity of the APIExport that a resource is served for.
	IdentityAnnotationKey = "apis.kcp.io/identity"
	// SchemaStorageAnnotationKey contains "virtual:<identity>" for resources with virtual storage.
	SchemaStorageAnnotationKey = "apis.kcp.io/schema-storage"
)

// Annotations of APIExports.
const (
	// SkipEndpointSliceAnnotationKey disables the creation of the default APIExportEndpointSlice. The value is ignored.
	SkipEndpointSliceAnnotationKey = "apiexports.apis.kcp.io/skip-endpointslice"
	// ExtraAnnotationKeyPrefix is the prefix of annotations that are copied to all APIBindings of the APIExport.
	ExtraAnnotationKeyPrefix = "extra.apis.kcp.io/"
	// ServedKindsAnnotationKey contains scope and kind of each resource that the APIExport has ever offered, as JSON. Only
	// the server sets it.
	ServedKindsAnnotationKey = "internal.apis.kcp.io/served-kinds"
	// SubresourceBackendsAnnotationKey contains the addresses and verbs of the backends of custom subresources, as JSON. The
	// server sets it.
	SubresourceBackendsAnnotationKey = "internal.apis.kcp.io/subresource-backends"
)

// Annotations that preserve fields of one version that do not exist in the other. They are set on objects of the
// version without the fields, and contain the fields as JSON of the version with them.
const (
	// ResourceSchemasAnnotationKey contains the v1alpha2 resources of an APIExport that are not stored as custom
	// resources.
	ResourceSchemasAnnotationKey = "apis.v1alpha2.kcp.io/resource-schemas"
	// PermissionClaimsAnnotationKey contains all v1alpha2 permission claims of an APIExport.
	PermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/permission-claims"
	// V1alpha1PermissionClaimsAnnotationKey contains v1alpha1 permission claims of an APIExport, or of the spec of an
	// APIBinding.
	V1alpha1PermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/v1alpha1-permission-claims"
	// AcceptablePermissionClaimsAnnotationKey contains v1alpha2 permission claims of the spec of an APIBinding.
	AcceptablePermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/acceptable-permission-claims"
	// StatusExportPermissionClaimsAnnotationKey contains v1alpha2 status.exportPermissionClaims of an APIBinding.
	StatusExportPermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/status-export-permission-claims"
	// StatusAppliedPermissionClaimsAnnotationKey contains v1alpha2 status.appliedPermissionClaims of an APIBinding.
	StatusAppliedPermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/status-applied-permission-claims"
	// V1alpha1StatusExportPermissionClaimsAnnotationKey contains v1alpha1 status.exportPermissionClaims of an
	// APIBinding.
	V1alpha1StatusExportPermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/v1alpha1-status-export-permission-claims"
	// V1alpha1StatusAppliedPermissionClaimsAnnotationKey contains v1alpha1 status.appliedPermissionClaims of an
	// APIBinding.
	V1alpha1StatusAppliedPermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/v1alpha1-status-applied-permission-claims"
	// DeletionPolicyAnnotationKey contains v1alpha2 spec.deletionPolicy of an APIBinding, as text, unless it is the default.
	DeletionPolicyAnnotationKey = "apis.kcp.io/deletion-policy"
)

// Labels.
const (
	// ExportLabelKey is a label of APIBindings. The value is the base-62 SHA-224 hash of "<cluster>:<name>" of the
	// APIExport.
	ExportLabelKey = "internal.apis.kcp.io/export"
	// ClaimedLabelKeyPrefix is the prefix of the label of objects that the provider of an APIExport can access because
	// of a permission claim on the resource.
	ClaimedLabelKeyPrefix = "claimed.internal.apis.kcp.io/"
)

// APIBindingFinalizer prevents the removal of an APIBinding until the objects of the bound resources are deleted.
const APIBindingFinalizer = "apis.kcp.io/apibinding-finalizer"

// VerbBind is the verb on an APIExport that is required to bind it.
const VerbBind = "bind"

// VerbAll matches all verbs in a permission claim.
const VerbAll = "*"

// Secrets with the identity of an APIExport.
const (
	// SecretKeyAPIExportIdentity is the key in the data of the Secret that contains the identity. The identity hash is
	// the SHA-256 hash of the identity in lower-case hexadecimal.
	SecretKeyAPIExportIdentity = "key"
	// IdentitySecretNamespace is the namespace of Secrets that are created by the server.
	IdentitySecretNamespace = "kcp-system"
)

// Condition types of APIExports.
const (
	// APIExportIdentityValid indicates that the Secret contains the identity whose hash is status.identityHash.
	APIExportIdentityValid conditionsv1alpha1.Type = "IdentityValid"
	// APIExportVirtualWorkspaceURLsReady indicates that status.virtualWorkspaces is complete.
	APIExportVirtualWorkspaceURLsReady conditionsv1alpha1.Type = "VirtualWorkspaceURLsReady"
)

// Reasons of the conditions of APIExports.
const (
	// IdentityGenerationFailedReason indicates that the Secret could not be created or could not be set in the spec.
	IdentityGenerationFailedReason = "IdentityGenerationFailed"
	// IdentityVerificationFailedReason indicates that the Secret is missing, is incomplete or contains another
	// identity.
	IdentityVerificationFailedReason = "IdentityVerificationFailed"
	// ErrorGeneratingURLsReason indicates that a shard has no usable URL.
	ErrorGeneratingURLsReason = "ErrorGeneratingURLs"
)

// Condition types of APIBindings. Ready summarizes InitialBindingCompleted.
const (
	// APIExportValid indicates that the APIExport exists and can be bound.
	APIExportValid conditionsv1alpha1.Type = "APIExportValid"
	// InitialBindingCompleted indicates that all resources of the APIExport have been bound once. It does not become
	// False again.
	InitialBindingCompleted conditionsv1alpha1.Type = "InitialBindingCompleted"
	// BindingUpToDate indicates that all current resources of the APIExport are bound.
	BindingUpToDate conditionsv1alpha1.Type = "BindingUpToDate"
	// PermissionClaimsValid indicates that all accepted permission claims are claims of the APIExport.
	PermissionClaimsValid conditionsv1alpha1.Type = "PermissionClaimsValid"
	// PermissionClaimsApplied indicates that all objects of the claimed resources are labelled.
	PermissionClaimsApplied conditionsv1alpha1.Type = "PermissionClaimsApplied"
	// BindingResourceDeleteSuccess indicates that the objects of an APIBinding that is being deleted are deleted.
	BindingResourceDeleteSuccess conditionsv1alpha1.Type = "BindingResourceDeleteSuccess"
)

// Reasons of the conditions of APIBindings.
const (
	// APIExportInvalidReferenceReason indicates that the reference is invalid.
	APIExportInvalidReferenceReason = "APIExportInvalidReference"
	// APIExportNotFoundReason indicates that the APIExport does not exist.
	APIExportNotFoundReason = "APIExportNotFound"
	// MissingIdentityHashReason indicates that the APIExport has no identity yet.
	MissingIdentityHashReason = "MissingIdentityHash"
	// APIResourceSchemaInvalidReason indicates that an APIResourceSchema cannot be converted to a
	// CustomResourceDefinition.
	APIResourceSchemaInvalidReason = "APIResourceSchemaInvalid"
	// WaitingForEstablishedReason indicates that a CustomResourceDefinition is not served yet.
	WaitingForEstablishedReason = "WaitingForEstablished"
	// LogicalClusterNotFoundReason indicates that the LogicalCluster in which resources are reserved does not exist.
	LogicalClusterNotFoundReason = "LogicalClusterNotFound"
	// NamingConflictsReason indicates that a name is used by another APIBinding or CustomResourceDefinition.
	NamingConflictsReason = "NamingConflicts"
	// InvalidPermissionClaimsReason indicates that an accepted permission claim is not a claim of the APIExport.
	InvalidPermissionClaimsReason = "InvalidPermissionClaims"
	// PermissionClaimsMismatchReason indicates that an accepted permission claim differs from the claim of the
	// APIExport.
	PermissionClaimsMismatchReason = "PermissionClaimsMismatch"
	// ResourceDeletionFailedReason indicates that objects could not be deleted because of an error.
	ResourceDeletionFailedReason = "ResourceDeletionFailed"
	// SomeResourcesRemainReason indicates that objects remain.
	SomeResourcesRemainReason = "SomeResourcesRemain"
	// SomeFinalizersRemainReason indicates that objects remain because of their finalizers.
	SomeFinalizersRemainReason = "SomeFinalizersRemain"
	// WaitingForSuccessorReason indicates that an APIBinding with the deletion policy WaitForSuccessor waits for another
	// APIBinding of its resources.
	WaitingForSuccessorReason = "WaitingForSuccessor"
	// InternalErrorReason indicates an error that the user cannot resolve.
	InternalErrorReason = "InternalError"
)
