package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// WorkspaceType defines the initialization of workspaces of this type and their allowed parents and children.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
type WorkspaceType struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the workspace type.
	// +optional
	Spec WorkspaceTypeSpec `json:"spec,omitempty"`

	// status is the observed state of the workspace type.
	// +optional
	Status WorkspaceTypeStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (w *WorkspaceType) GetConditions() conditionsv1alpha1.Conditions { return w.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (w *WorkspaceType) SetConditions(conditions conditionsv1alpha1.Conditions) {
	w.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &WorkspaceType{}

// WorkspaceTypeSpec describes the desired state of a WorkspaceType.
type WorkspaceTypeSpec struct {
	// initializer specifies whether an initializer is added to workspaces of this type and of types that extend it.
	// +optional
	Initializer bool `json:"initializer,omitempty"`

	// initializerPermissions are the permissions of the initializer of this type in workspaces that it initializes.
	// They are not inherited.
	// +optional
	InitializerPermissions []rbacv1.PolicyRule `json:"initializerPermissions,omitempty"`

	// terminator specifies whether a terminator is added to workspaces of this type and of types that extend it.
	// +optional
	Terminator bool `json:"terminator,omitempty"`

	// terminatorPermissions are the permissions of the terminator of this type in workspaces that it cleans up. They
	// are not inherited.
	// +optional
	TerminatorPermissions []rbacv1.PolicyRule `json:"terminatorPermissions,omitempty"`

	// extend references the types from which this type inherits initializers, terminators, default bindings and
	// constraints on parents and children.
	// +optional
	Extend WorkspaceTypeExtension `json:"extend,omitzero"`

	// additionalWorkspaceLabels are labels that are added to new workspaces of this type. Labels that are already set
	// are not changed. They are not inherited.
	// +optional
	AdditionalWorkspaceLabels map[string]string `json:"additionalWorkspaceLabels,omitempty"`

	// defaultChildWorkspaceType is a reference to the type of child workspaces that are created without a type.
	// Defaults to type universal in workspace root.
	// +optional
	// +kubebuilder:default={name: "universal", path: "root"}
	DefaultChildWorkspaceType *WorkspaceTypeReference `json:"defaultChildWorkspaceType,omitempty"`

	// limitAllowedChildren restricts the types of child workspaces. If unset, all types are allowed.
	// +optional
	LimitAllowedChildren *WorkspaceTypeSelector `json:"limitAllowedChildren,omitempty"`

	// limitAllowedParents restricts the types of the parent workspace. If unset, all types are allowed.
	// +optional
	LimitAllowedParents *WorkspaceTypeSelector `json:"limitAllowedParents,omitempty"`

	// defaultAPIBindings are the APIExports to which new workspaces are bound.
	// +optional
	DefaultAPIBindings []APIExportReference `json:"defaultAPIBindings,omitempty"`

	// defaultAPIBindingLifecycle defines whether default bindings are only created during initialization
	// (InitializeOnly) or also kept up to date with the type (Maintain). If unset, they are not kept up to date.
	// +optional
	DefaultAPIBindingLifecycle *APIBindingLifecycleMode `json:"defaultAPIBindingLifecycle,omitempty"`

	// authenticationConfigurations are references to WorkspaceAuthenticationConfigurations in the same workspace as
	// this type. They authenticate users of workspaces of this type.
	// +optional
	AuthenticationConfigurations []AuthenticationConfigurationReference `json:"authenticationConfigurations,omitempty"`
}

// WorkspaceTypeExtension references the types that a type inherits from.
type WorkspaceTypeExtension struct {
	// with is the list of these types.
	// +optional
	With []WorkspaceTypeReference `json:"with,omitempty"`
}

// WorkspaceTypeSelector selects workspace types: either none or a list of types. Exactly one field must be set.
//
// +kubebuilder:validation:ExactlyOneOf=none;types
type WorkspaceTypeSelector struct {
	// none specifies that no type is allowed. Must be unset if types is set, even if its value is false.
	// +optional
	None *bool `json:"none,omitempty"`

	// types are the allowed types. Types that extend one of them are also allowed.
	// +optional
	// +kubebuilder:validation:MinItems=1
	Types []WorkspaceTypeReference `json:"types,omitempty"`
}

// AllowsNone reports whether the selector allows no type.
func (s *WorkspaceTypeSelector) AllowsNone() bool { return s != nil && s.None != nil && *s.None }

// APIExportReference is a reference to an APIExport.
type APIExportReference struct {
	// path is the path or cluster name of the workspace that contains the APIExport. Defaults to the workspace of the
	// type.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`

	// export is the name of the APIExport.
	// +required
	Export string `json:"export"`
}

// APIBindingLifecycleMode defines how default bindings are managed after their creation.
//
// +kubebuilder:validation:Enum=InitializeOnly;Maintain
type APIBindingLifecycleMode string

const (
	// APIBindingLifecycleModeInitializeOnly means that default bindings are created once and not updated afterwards.
	APIBindingLifecycleModeInitializeOnly APIBindingLifecycleMode = "InitializeOnly"
	// APIBindingLifecycleModeMaintain means that default bindings are kept up to date with the type.
	APIBindingLifecycleModeMaintain APIBindingLifecycleMode = "Maintain"
)

// AuthenticationConfigurationReference is a reference to a WorkspaceAuthenticationConfiguration in the same workspace
// as the type.
type AuthenticationConfigurationReference struct {
	// name is the name of the WorkspaceAuthenticationConfiguration.
	// +required
	Name string `json:"name"`
}

// WorkspaceTypeStatus describes the observed state of a WorkspaceType.
type WorkspaceTypeStatus struct {
	// conditions are the current conditions of the workspace type.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// virtualWorkspaces are the virtual workspaces, for every shard, through which the initializer and the terminator
	// of this type access workspaces.
	// +optional
	VirtualWorkspaces []VirtualWorkspace `json:"virtualWorkspaces,omitempty"`
}

// VirtualWorkspace describes the endpoint of a virtual workspace.
type VirtualWorkspace struct {
	// url is the URL of the virtual workspace.
	// +required
	// +kubebuilder:validation:MinLength=1
	URL string `json:"url"`

	// type is the type of the virtual workspace: initializing or terminating.
	// +optional
	Type VirtualWorkspaceType `json:"type,omitempty"`
}

// VirtualWorkspaceType is the type of a virtual workspace.
//
// +kubebuilder:validation:Enum=initializing;terminating
type VirtualWorkspaceType string

const (
	// VirtualWorkspaceTypeInitializing means that the virtual workspace serves workspaces with a pending initializer.
	VirtualWorkspaceTypeInitializing VirtualWorkspaceType = "initializing"
	// VirtualWorkspaceTypeTerminating means that the virtual workspace serves workspaces with a pending terminator.
	VirtualWorkspaceTypeTerminating VirtualWorkspaceType = "terminating"
)

// WorkspaceTypeList is a list of WorkspaceTypes.
//
// +kubebuilder:object:root=true
type WorkspaceTypeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkspaceType `json:"items"`
}
