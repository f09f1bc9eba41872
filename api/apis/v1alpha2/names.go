package v1alpha2

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Annotations that tell a schema, as seen by its consumers, from others. They stand on definitions.
const (
	// BoundCRDAnnotationKey marks a definition that was made of an APIResourceSchema. Its value is empty.
	BoundCRDAnnotationKey = "apis.kcp.io/bound-crd"
	// SchemaClusterAnnotationKey holds the logical cluster of that schema.
	SchemaClusterAnnotationKey = "apis.kcp.io/schema-cluster"
	// SchemaNameAnnotationKey holds the name of that schema.
	SchemaNameAnnotationKey = "apis.kcp.io/schema-name"
	// IdentityAnnotationKey holds the identity of the export that a resource is served for.
	IdentityAnnotationKey = "apis.kcp.io/identity"
	// SchemaStorageAnnotationKey holds "virtual:<identity>" where objects are not stored but fetched from elsewhere.
	SchemaStorageAnnotationKey = "apis.kcp.io/schema-storage"
)

// Annotations of APIExports.
const (
	// SkipEndpointSliceAnnotationKey keeps the server from making an APIExportEndpointSlice, whatever its value.
	SkipEndpointSliceAnnotationKey = "apiexports.apis.kcp.io/skip-endpointslice"
	// ExtraAnnotationKeyPrefix starts annotations that are copied to every APIBinding of the export.
	ExtraAnnotationKeyPrefix = "extra.apis.kcp.io/"
)

// Annotations that keep what one version can say and the other cannot. Each is found on objects of the version that
// cannot, and holds JSON of the version that can.
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
	// ExportLabelKey stands on APIBindings. Its value is the base-62 SHA-224 of "<cluster of the export>:<its name>".
	ExportLabelKey = "internal.apis.kcp.io/export"
	// ClaimedLabelKeyPrefix starts the label of an object that the provider of an export may see because it claims the
	// resource.
	ClaimedLabelKeyPrefix = "claimed.internal.apis.kcp.io/"
)

// APIBindingFinalizer stands on an APIBinding until the objects of the resources that it binds are gone.
const APIBindingFinalizer = "apis.kcp.io/apibinding-finalizer"

// VerbBind is the verb that one needs on an APIExport to bind it.
const VerbBind = "bind"

// VerbAll among the verbs of a claim stands for all of them.
const VerbAll = "*"

// Secrets with the identity of an export.
const (
	// SecretKeyAPIExportIdentity is the key of the secret's data that holds the identity. Its SHA-256, in lower-case
	// hex, is the identity hash.
	SecretKeyAPIExportIdentity = "key"
	// IdentitySecretNamespace is the namespace of the secrets that the server makes.
	IdentitySecretNamespace = "kcp-system"
)

// Condition types of APIExports.
const (
	// APIExportIdentityValid: the secret holds what status.identityHash was made of.
	APIExportIdentityValid conditionsv1alpha1.Type = "IdentityValid"
	// APIExportVirtualWorkspaceURLsReady: status.virtualWorkspaces is complete.
	APIExportVirtualWorkspaceURLsReady conditionsv1alpha1.Type = "VirtualWorkspaceURLsReady"
)

// Reasons of the conditions of APIExports.
const (
	// IdentityGenerationFailedReason: no secret could be made or referred to.
	IdentityGenerationFailedReason = "IdentityGenerationFailed"
	// IdentityVerificationFailedReason: the secret is missing, incomplete or holds another identity.
	IdentityVerificationFailedReason = "IdentityVerificationFailed"
	// ErrorGeneratingURLsReason: a shard has no usable URL.
	ErrorGeneratingURLsReason = "ErrorGeneratingURLs"
)

// Condition types of APIBindings. Ready sums up InitialBindingCompleted.
const (
	// APIExportValid: the export exists and can be bound.
	APIExportValid conditionsv1alpha1.Type = "APIExportValid"
	// InitialBindingCompleted: everything that the export offers has been bound once. It never becomes False again.
	InitialBindingCompleted conditionsv1alpha1.Type = "InitialBindingCompleted"
	// BindingUpToDate: everything that the export offers now is bound.
	BindingUpToDate conditionsv1alpha1.Type = "BindingUpToDate"
	// PermissionClaimsValid: what is accepted is claimed by the export.
	PermissionClaimsValid conditionsv1alpha1.Type = "PermissionClaimsValid"
	// PermissionClaimsApplied: all objects of the claimed resources are labelled.
	PermissionClaimsApplied conditionsv1alpha1.Type = "PermissionClaimsApplied"
	// BindingResourceDeleteSuccess: the objects of a binding that is being deleted are gone.
	BindingResourceDeleteSuccess conditionsv1alpha1.Type = "BindingResourceDeleteSuccess"
)

// Reasons of the conditions of APIBindings.
const (
	// APIExportInvalidReferenceReason: the reference cannot be understood.
	APIExportInvalidReferenceReason = "APIExportInvalidReference"
	// APIExportNotFoundReason: there is no such export.
	APIExportNotFoundReason = "APIExportNotFound"
	// MissingIdentityHashReason: the export has no identity yet.
	MissingIdentityHashReason = "MissingIdentityHash"
	// APIResourceSchemaInvalidReason: no definition can be made of a schema.
	APIResourceSchemaInvalidReason = "APIResourceSchemaInvalid"
	// WaitingForEstablishedReason: a definition is not served yet.
	WaitingForEstablishedReason = "WaitingForEstablished"
	// LogicalClusterNotFoundReason: there is no LogicalCluster that could hold the locks.
	LogicalClusterNotFoundReason = "LogicalClusterNotFound"
	// NamingConflictsReason: a name is taken by another binding or definition.
	NamingConflictsReason = "NamingConflicts"
	// InvalidPermissionClaimsReason: a claim is accepted that the export does not have.
	InvalidPermissionClaimsReason = "InvalidPermissionClaims"
	// PermissionClaimsMismatchReason: a claim is accepted in another form than the export has it.
	PermissionClaimsMismatchReason = "PermissionClaimsMismatch"
	// ResourceDeletionFailedReason: deleting objects met an error.
	ResourceDeletionFailedReason = "ResourceDeletionFailed"
	// SomeResourcesRemainReason: objects remain.
	SomeResourcesRemainReason = "SomeResourcesRemain"
	// SomeFinalizersRemainReason: objects remain because of their finalizers.
	SomeFinalizersRemainReason = "SomeFinalizersRemain"
	// InternalErrorReason: something failed that the user cannot mend.
	InternalErrorReason = "InternalError"
)
