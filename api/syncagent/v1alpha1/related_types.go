package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RelatedResourceOrigin is the side that decides about the content of related objects.
// +kubebuilder:validation:Enum=service;kcp
type RelatedResourceOrigin string

// The origins.
const (
	// RelatedResourceOriginService means that objects are copied from the service cluster to the workspace.
	RelatedResourceOriginService RelatedResourceOrigin = "service"
	// RelatedResourceOriginKcp means that objects are copied from the workspace to the service cluster.
	RelatedResourceOriginKcp RelatedResourceOrigin = "kcp"
)

// RelatedResourceCleanupPolicy says when copies of related objects are deleted.
// +kubebuilder:validation:Enum=Orphan;OnPrimaryDeletion;MatchOrigin
type RelatedResourceCleanupPolicy string

// The clean-up policies.
const (
	// CleanupOrphan leaves copies.
	CleanupOrphan RelatedResourceCleanupPolicy = "Orphan"
	// CleanupOnPrimaryDeletion deletes copies when the primary object is deleted.
	CleanupOnPrimaryDeletion RelatedResourceCleanupPolicy = "OnPrimaryDeletion"
	// CleanupMatchOrigin deletes copies when the primary object or the object that they are copies of is deleted.
	CleanupMatchOrigin RelatedResourceCleanupPolicy = "MatchOrigin"
)

// RelatedResourceSpec are objects that belong to an object of the published resource, and are copied with it.
// +kubebuilder:validation:XValidation:rule="has(self.kind) != (has(self.version) || has(self.resource))",message="set either kind, or version and resource"
// +kubebuilder:validation:XValidation:rule="has(self.resource) == has(self.version)",message="resource and version must be set together"
// +kubebuilder:validation:XValidation:rule="!has(self.group) || (has(self.version) && has(self.resource))",message="group needs version and resource"
// +kubebuilder:validation:XValidation:rule="!has(self.identityHash) || (has(self.group) && has(self.version) && has(self.resource))",message="identityHash needs group, version and resource"
// +kubebuilder:validation:XValidation:rule="!(self.origin == 'service' && has(self.syncStatus) && self.syncStatus) || has(self.watch)",message="syncStatus with origin service needs watch"
type RelatedResourceSpec struct {
	// identifier is unique within the PublishedResource. It is part of annotation keys.
	// +required
	// +kubebuilder:validation:MaxLength=60
	Identifier string `json:"identifier"`

	// origin is the side that decides about the content.
	// +required
	Origin RelatedResourceOrigin `json:"origin"`

	// kind is ConfigMap or Secret. Deprecated: use version and resource.
	// +optional
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	Kind string `json:"kind,omitempty"`

	// group is the API group on the side of the origin; empty for the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// version is the API version on the side of the origin.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// resource is the plural name of the resource on the side of the origin.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource,omitempty"`

	// identityHash is the identity of the APIExport that the resource belongs to in workspaces, if it is not the one of
	// the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	IdentityHash string `json:"identityHash,omitempty"`

	// cleanup is the older form of cleanupPolicy OnPrimaryDeletion.
	// +optional
	Cleanup bool `json:"cleanup,omitempty"`

	// cleanupPolicy says when copies in the workspace are deleted. By default, cleanup decides.
	// +optional
	CleanupPolicy RelatedResourceCleanupPolicy `json:"cleanupPolicy,omitempty"`

	// projection is the resource on the other side, where it differs.
	// +optional
	Projection *RelatedResourceProjection `json:"projection,omitempty"`

	// object says how the objects are found.
	// +required
	Object RelatedResourceObject `json:"object"`

	// mutation changes the content of objects on the way.
	// +optional
	Mutation *ResourceMutationSpec `json:"mutation,omitempty"`

	// watch has changes of related objects on the service cluster sync the primary object at once.
	// +optional
	Watch *RelatedResourceWatch `json:"watch,omitempty"`

	// syncStatus copies the status from the origin to the copy.
	// +optional
	SyncStatus bool `json:"syncStatus,omitempty"`
}

// RelatedResourceProjection is the resource on the side of the copy; what is not set is as on the side of the origin.
type RelatedResourceProjection struct {
	// group is the API group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// version is the API version.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// resource is the plural name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource,omitempty"`
}

// RelatedResourceObject says how related objects are found; one of reference, selector and template is set.
type RelatedResourceObject struct {
	RelatedResourceObjectSpec `json:",inline"`

	// namespace says how their namespace is found. By default, it is the namespace of the primary object on each side.
	// +optional
	Namespace *RelatedResourceObjectSpec `json:"namespace,omitempty"`
}

// RelatedResourceObjectSpec finds names; one field is set.
type RelatedResourceObjectSpec struct {
	// reference reads names out of the primary object, on each side.
	// +optional
	Reference *RelatedResourceObjectReference `json:"reference,omitempty"`

	// selector lists objects on the side of the origin.
	// +optional
	Selector *RelatedResourceObjectSelector `json:"selector,omitempty"`

	// template renders a name, for each side.
	// +optional
	Template *TemplateExpression `json:"template,omitempty"`
}

// RelatedResourceObjectReference reads names out of the primary object.
type RelatedResourceObjectReference struct {
	// path is the field with the name, or with a list of names.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`

	// regex changes each name.
	// +optional
	Regex *RegularExpression `json:"regex,omitempty"`
}

// RelatedResourceObjectSelector lists objects on the side of the origin. Keys and values of matchLabels may be Go templates.
// +structType=atomic
type RelatedResourceObjectSelector struct {
	metav1.LabelSelector `json:",inline"`

	// rewrite computes the name of the copy.
	// +required
	Rewrite RelatedResourceSelectorRewrite `json:"rewrite"`
}

// RelatedResourceSelectorRewrite computes the name of the copy; one field is set.
type RelatedResourceSelectorRewrite struct {
	// regex changes the name.
	// +optional
	Regex *RegularExpression `json:"regex,omitempty"`

	// template renders the name.
	// +optional
	Template *TemplateExpression `json:"template,omitempty"`
}

// RelatedResourceWatch says which related objects are watched; exactly one field is set.
// +kubebuilder:validation:XValidation:rule="has(self.byOwner) != has(self.bySelector)",message="exactly one of byOwner and bySelector must be set"
type RelatedResourceWatch struct {
	// byOwner means that related objects have an owner reference to the primary object's copy.
	// +optional
	ByOwner *RelatedResourceWatchByOwner `json:"byOwner,omitempty"`

	// bySelector selects primary objects by their labels; a change of any related object syncs all of them that it may belong to.
	// +optional
	BySelector *metav1.LabelSelector `json:"bySelector,omitempty"`
}

// RelatedResourceWatchByOwner has no options.
type RelatedResourceWatchByOwner struct{}

// RegularExpression replaces in a text.
type RegularExpression struct {
	// pattern is a regular expression as in Go. If it is empty, the replacement replaces the whole text.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Pattern string `json:"pattern,omitempty"`

	// replacement replaces all matches; $1 is the first group.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Replacement string `json:"replacement,omitempty"`
}

// TemplateExpression is a Go template.
type TemplateExpression struct {
	// template is a Go template.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Template string `json:"template,omitempty"`
}
