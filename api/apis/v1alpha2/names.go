package v1alpha2

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Annotations of the definitions of schemas.
const (
	// BoundCRDAnnotationKey marks a definition that was created from an APIResourceSchema. Its value is empty.
	BoundCRDAnnotationKey = "apis.kcp.io/bound-crd"
	// SchemaClusterAnnotationKey holds the logical cluster of that schema.
	SchemaClusterAnnotationKey = "apis.kcp.io/schema-cluster"
	// SchemaNameAnnotationKey holds the name of that schema.
	SchemaNameAnnotationKey = "apis.kcp.io/schema-name"
	// IdentityAnnotationKey holds the identity of the export that a resource is served for.
	IdentityAnnotationKey = "apis.kcp.io/identity"
	// SchemaStorageAnnotationKey contains "virtual:<identity>" for resources with virtual storage.
	SchemaStorageAnnotationKey = "apis.kcp.io/schema-storage"
)

// Annotations of APIExports.
const (
	// SkipEndpointSliceAnnotationKey disables the creation of the default APIExportEndpointSlice, whatever its value.
	SkipEndpointSliceAnnotationKey = "apiexports.apis.kcp.io/skip-endpointslice"
	// ExtraAnnotationKeyPrefix is the prefix of annotations that are copied to every APIBinding of the export.
	ExtraAnnotationKeyPrefix = "extra.apis.kcp.io/"
)

// Annotations that preserve fields of one version in the other, which lacks them. They are set on objects of the
// version without the fields, and contain JSON of the version with them.
const (
	// ResourceSchemasAnnotationKey: the v1alpha2 resources of an APIExport that are not stored as custom resources.
	ResourceSchemasAnnotationKey = "apis.v1alpha2.kcp.io/resource-schemas"
	// PermissionClaimsAnnotationKey: all v1alpha2 claims of an APIExport.
	PermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/permission-claims"
	// V1alpha1PermissionClaimsAnnotationKey: v1alpha1 claims of an APIExport, or of the spec of an APIBinding.
	V1alpha1PermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/v1alpha1-permission-claims"
	// AcceptablePermissionClaimsAnnotationKey: v1alpha2 claims of the spec of an APIBinding.
	AcceptablePermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/acceptable-permission-claims"
	// StatusExportPermissionClaimsAnnotationKey: v1alpha2 status.exportPermissionClaims of an APIBinding.
	StatusExportPermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/status-export-permission-claims"
	// StatusAppliedPermissionClaimsAnnotationKey: v1alpha2 status.appliedPermissionClaims of an APIBinding.
	StatusAppliedPermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/status-applied-permission-claims"
	// V1alpha1StatusExportPermissionClaimsAnnotationKey: v1alpha1 status.exportPermissionClaims of an APIBinding.
	V1alpha1StatusExportPermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/v1alpha1-status-export-permission-claims"
	// V1alpha1StatusAppliedPermissionClaimsAnnotationKey: v1alpha1 status.appliedPermissionClaims of an APIBinding.
	V1alpha1StatusAppliedPermissionClaimsAnnotationKey = "apis.v1alpha2.kcp.io/v1alpha1-status-applied-permission-claims"
)

// Labels.
const (
	// ExportLabelKey is a label of APIBindings. Its value is the base-62 SHA-224 of "<cluster of the export>:<its
	// name>".
	ExportLabelKey = "internal.apis.kcp.io/export"
	// ClaimedLabelKeyPrefix is the prefix of the label of an object that the provider of an export may access by a
	// claim on the resource.
	ClaimedLabelKeyPrefix = "claimed.internal.apis.kcp.io/"
)

// APIBindingFinalizer remains on an APIBinding until the objects of the resources that it binds are deleted.
const APIBindingFinalizer = "apis.kcp.io/apibinding-finalizer"

// VerbBind is the required verb on an APIExport for binding it.
const VerbBind = "bind"

// VerbAll in the verbs of a claim stands for all verbs.
const VerbAll = "*"

// Secrets with the identity of an export.
const (
	// SecretKeyAPIExportIdentity is the key of the secret's data that holds the identity. Its SHA-256, in lower-case
	// hex, is the identity hash.
	SecretKeyAPIExportIdentity = "key"
	// IdentitySecretNamespace is the namespace of the secrets that the server creates.
	IdentitySecretNamespace = "kcp-system"
)

// Condition types of APIExports.
const (
	// APIExportIdentityValid: the secret contains the identity whose hash is status.identityHash.
	APIExportIdentityValid conditionsv1alpha1.Type = "IdentityValid"
	// APIExportVirtualWorkspaceURLsReady: status.virtualWorkspaces is complete.
	APIExportVirtualWorkspaceURLsReady conditionsv1alpha1.Type = "VirtualWorkspaceURLsReady"
)

// Reasons of the conditions of APIExports.
const (
	// IdentityGenerationFailedReason: the secret could not be created, or not be set in the spec.
	IdentityGenerationFailedReason = "IdentityGenerationFailed"
	// IdentityVerificationFailedReason: the secret is missing, incomplete or holds another identity.
	IdentityVerificationFailedReason = "IdentityVerificationFailed"
	// ErrorGeneratingURLsReason: a shard has no usable URL.
	ErrorGeneratingURLsReason = "ErrorGeneratingURLs"
)

// Condition types of APIBindings. Ready summarizes InitialBindingCompleted.
const (
	// APIExportValid: the export exists and can be bound.
	APIExportValid conditionsv1alpha1.Type = "APIExportValid"
	// InitialBindingCompleted: all resources of the export have been bound once. It never becomes False again.
	InitialBindingCompleted conditionsv1alpha1.Type = "InitialBindingCompleted"
	// BindingUpToDate: all current resources of the export are bound.
	BindingUpToDate conditionsv1alpha1.Type = "BindingUpToDate"
	// PermissionClaimsValid: the export makes all accepted claims.
	PermissionClaimsValid conditionsv1alpha1.Type = "PermissionClaimsValid"
	// PermissionClaimsApplied: all objects of the claimed resources are labelled.
	PermissionClaimsApplied conditionsv1alpha1.Type = "PermissionClaimsApplied"
	// BindingResourceDeleteSuccess: the objects of a binding that is being deleted are deleted.
	BindingResourceDeleteSuccess conditionsv1alpha1.Type = "BindingResourceDeleteSuccess"
)

// Reasons of the conditions of APIBindings.
const (
	// APIExportInvalidReferenceReason: the reference is invalid.
	APIExportInvalidReferenceReason = "APIExportInvalidReference"
	// APIExportNotFoundReason: the export does not exist.
	APIExportNotFoundReason = "APIExportNotFound"
	// MissingIdentityHashReason: the export has no identity yet.
	MissingIdentityHashReason = "MissingIdentityHash"
	// APIResourceSchemaInvalidReason: a schema cannot be converted to a definition.
	APIResourceSchemaInvalidReason = "APIResourceSchemaInvalid"
	// WaitingForEstablishedReason: a definition is not served yet.
	WaitingForEstablishedReason = "WaitingForEstablished"
	// LogicalClusterNotFoundReason: there is no LogicalCluster to hold the resource reservations.
	LogicalClusterNotFoundReason = "LogicalClusterNotFound"
	// NamingConflictsReason: a name is used by another binding or definition.
	NamingConflictsReason = "NamingConflicts"
	// InvalidPermissionClaimsReason: an accepted claim is not made by the export.
	InvalidPermissionClaimsReason = "InvalidPermissionClaims"
	// PermissionClaimsMismatchReason: an accepted claim differs from the claim of the export.
	PermissionClaimsMismatchReason = "PermissionClaimsMismatch"
	// ResourceDeletionFailedReason: objects could not be deleted because of an error.
	ResourceDeletionFailedReason = "ResourceDeletionFailed"
	// SomeResourcesRemainReason: objects remain.
	SomeResourcesRemainReason = "SomeResourcesRemain"
	// SomeFinalizersRemainReason: objects remain because of their finalizers.
	SomeFinalizersRemainReason = "SomeFinalizersRemain"
	// InternalErrorReason: an error that the user cannot fix.
	InternalErrorReason = "InternalError"
)
