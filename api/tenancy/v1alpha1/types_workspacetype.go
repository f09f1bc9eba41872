package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// WorkspaceType says how workspaces of this type are prepared, and where they may stand in the tree.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
type WorkspaceType struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how workspaces of this type are prepared.
	// +optional
	Spec WorkspaceTypeSpec `json:"spec,omitempty"`

	// status is what the system adds.
	// +optional
	Status WorkspaceTypeStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *WorkspaceType) GetConditions() conditionsv1alpha1.Conditions { return in.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (in *WorkspaceType) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &WorkspaceType{}

// WorkspaceTypeSpec says how workspaces of a type are prepared, and where they may stand in the tree.
type WorkspaceTypeSpec struct {
	// initializer adds an initializer for workspaces of this type and of the types that extend it.
	// +optional
	Initializer bool `json:"initializer,omitempty"`

	// initializerPermissions are the rights of this type's initializer in a workspace that it prepares. They are not
	// inherited.
	// +optional
	InitializerPermissions []rbacv1.PolicyRule `json:"initializerPermissions,omitempty"`

	// terminator adds a terminator for workspaces of this type and of the types that extend it.
	// +optional
	Terminator bool `json:"terminator,omitempty"`

	// terminatorPermissions are the rights of this type's terminator in a workspace that it cleans up. They are not
	// inherited.
	// +optional
	TerminatorPermissions []rbacv1.PolicyRule `json:"terminatorPermissions,omitempty"`

	// extend names types whose initializers, terminators, default bindings and place in the tree this one inherits.
	// +optional
	Extend WorkspaceTypeExtension `json:"extend,omitzero"`

	// additionalWorkspaceLabels are put on new workspaces of this very type, where they do not have them.
	// +optional
	AdditionalWorkspaceLabels map[string]string `json:"additionalWorkspaceLabels,omitempty"`

	// defaultChildWorkspaceType is the type of child workspaces that are created without one.
	// +optional
	// +kubebuilder:default={name: "universal", path: "root"}
	DefaultChildWorkspaceType *WorkspaceTypeReference `json:"defaultChildWorkspaceType,omitempty"`

	// limitAllowedChildren says which types children may have. Without it, any.
	// +optional
	LimitAllowedChildren *WorkspaceTypeSelector `json:"limitAllowedChildren,omitempty"`

	// limitAllowedParents says which types the parent may have. Without it, any.
	// +optional
	LimitAllowedParents *WorkspaceTypeSelector `json:"limitAllowedParents,omitempty"`

	// defaultAPIBindings are the exports that new workspaces are bound to.
	// +optional
	DefaultAPIBindings []APIExportReference `json:"defaultAPIBindings,omitempty"`

	// defaultAPIBindingLifecycle says whether those bindings are kept as the type wants them, or only made once.
	// +optional
	DefaultAPIBindingLifecycle *APIBindingLifecycleMode `json:"defaultAPIBindingLifecycle,omitempty"`

	// authenticationConfigurations name WorkspaceAuthenticationConfigurations beside this type, by which users of the
	// workspaces may authenticate.
	// +optional
	AuthenticationConfigurations []AuthenticationConfigurationReference `json:"authenticationConfigurations,omitempty"`
}

// WorkspaceTypeExtension names the types that a type inherits from.
type WorkspaceTypeExtension struct {
	// with lists those types.
	// +optional
	With []WorkspaceTypeReference `json:"with,omitempty"`
}

// WorkspaceTypeSelector allows either no type at all or a list of types.
//
// +kubebuilder:validation:ExactlyOneOf=none;types
type WorkspaceTypeSelector struct {
	// none allows no type. That it is set counts, and excludes types: hence the pointer.
	// +optional
	None *bool `json:"none,omitempty"`

	// types lists what is allowed; whatever extends one of them is allowed too.
	// +optional
	// +kubebuilder:validation:MinItems=1
	Types []WorkspaceTypeReference `json:"types,omitempty"`
}

// AllowsNone reports whether the selector allows no type.
func (s *WorkspaceTypeSelector) AllowsNone() bool { return s != nil && s.None != nil && *s.None }

// APIExportReference names an APIExport.
type APIExportReference struct {
	// path, or cluster name, of the workspace that holds the export. It defaults to that of the type.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`

	// export is the name of the export.
	// +required
	Export string `json:"export"`
}

// APIBindingLifecycleMode says what becomes of default bindings after they were made.
//
// +kubebuilder:validation:Enum=InitializeOnly;Maintain
type APIBindingLifecycleMode string

const (
	// APIBindingLifecycleModeInitializeOnly makes default bindings once and leaves them to the users.
	APIBindingLifecycleModeInitializeOnly APIBindingLifecycleMode = "InitializeOnly"
	// APIBindingLifecycleModeMaintain keeps default bindings as the type wants them.
	APIBindingLifecycleModeMaintain APIBindingLifecycleMode = "Maintain"
)

// AuthenticationConfigurationReference names a WorkspaceAuthenticationConfiguration beside the type.
type AuthenticationConfigurationReference struct {
	// name of the configuration.
	// +required
	Name string `json:"name"`
}

// WorkspaceTypeStatus is what the system adds to a type.
type WorkspaceTypeStatus struct {
	// conditions tell single facts.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// virtualWorkspaces are where initializers and terminators of this type find their workspaces, for every shard.
	// +optional
	VirtualWorkspaces []VirtualWorkspace `json:"virtualWorkspaces,omitempty"`
}

// VirtualWorkspace is the address of one virtual workspace.
type VirtualWorkspace struct {
	// url of the virtual workspace.
	// +required
	// +kubebuilder:validation:MinLength=1
	URL string `json:"url"`

	// type says who it is for.
	// +optional
	Type VirtualWorkspaceType `json:"type,omitempty"`
}

// VirtualWorkspaceType says who a virtual workspace is for.
//
// +kubebuilder:validation:Enum=initializing;terminating
type VirtualWorkspaceType string

const (
	// VirtualWorkspaceTypeInitializing shows the workspaces that wait for an initializer.
	VirtualWorkspaceTypeInitializing VirtualWorkspaceType = "initializing"
	// VirtualWorkspaceTypeTerminating shows the workspaces that wait for a terminator.
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
