package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RelatedResourceOrigin is the side with the original of related objects: the service cluster (service) or the
// workspace (kcp).
// +kubebuilder:validation:Enum=service;kcp
type RelatedResourceOrigin string

// The origins.
const (
	// RelatedResourceOriginService means that objects are copied from the service cluster to the workspace.
	RelatedResourceOriginService RelatedResourceOrigin = "service"
	// RelatedResourceOriginKcp means that objects are copied from the workspace to the service cluster.
	RelatedResourceOriginKcp RelatedResourceOrigin = "kcp"
)

// RelatedResourceCleanupPolicy defines when copies of related objects are deleted.
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

// RelatedResourceSpec selects objects that are synced together with an object of the published resource, which is
// their primary object.
// +kubebuilder:validation:XValidation:rule="has(self.kind) != (has(self.version) || has(self.resource))",message="set either kind, or version and resource"
// +kubebuilder:validation:XValidation:rule="has(self.resource) == has(self.version)",message="resource and version must be set together"
// +kubebuilder:validation:XValidation:rule="!has(self.group) || (has(self.version) && has(self.resource))",message="group needs version and resource"
// +kubebuilder:validation:XValidation:rule="!has(self.identityHash) || (has(self.group) && has(self.version) && has(self.resource))",message="identityHash needs group, version and resource"
// +kubebuilder:validation:XValidation:rule="!(self.origin == 'service' && has(self.syncStatus) && self.syncStatus) || has(self.watch)",message="syncStatus with origin service needs watch"
type RelatedResourceSpec struct {
	// identifier is a name that is unique within the PublishedResource. It is part of the keys of annotations of
	// copies.
	// +required
	// +kubebuilder:validation:MaxLength=60
	Identifier string `json:"identifier"`

	// origin is the side with the original: service for the service cluster, kcp for the workspace. The agent copies
	// from there to the other side.
	// +required
	Origin RelatedResourceOrigin `json:"origin"`

	// kind is ConfigMap or Secret. Deprecated: use version and resource.
	// +optional
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	Kind string `json:"kind,omitempty"`

	// group is the API group of the resource on the side of the origin. Empty for the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// version is the API version of the resource on the side of the origin. Must be set together with resource.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// resource is the plural name of the resource on the side of the origin. Must be set together with version.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource,omitempty"`

	// identityHash is the identity hash of the APIExport that provides the resource in workspaces. It needs group,
	// version and resource. Leave it empty for built-in resources and for those of the agent's own APIExport.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	IdentityHash string `json:"identityHash,omitempty"`

	// cleanup deletes copies when the primary object is deleted. Ignored if cleanupPolicy is set. Deprecated: use
	// cleanupPolicy.
	// +optional
	Cleanup bool `json:"cleanup,omitempty"`

	// cleanupPolicy defines when copies in the workspace are deleted: never (Orphan), with the primary object
	// (OnPrimaryDeletion), or with the primary object or the original (MatchOrigin). Defaults to OnPrimaryDeletion if
	// cleanup is true, and otherwise to Orphan. Copies on the service cluster are always deleted with the primary
	// object.
	// +optional
	CleanupPolicy RelatedResourceCleanupPolicy `json:"cleanupPolicy,omitempty"`

	// projection is the resource of the copy, if it differs from that of the original.
	// +optional
	Projection *RelatedResourceProjection `json:"projection,omitempty"`

	// object defines how the agent finds the related objects, and how it names their copies.
	// +required
	Object RelatedResourceObject `json:"object"`

	// mutation changes the content of objects while they are copied. If unset, copies have the content of the
	// original.
	// +optional
	Mutation *ResourceMutationSpec `json:"mutation,omitempty"`

	// watch syncs the primary object as soon as a related object on the service cluster changes. If unset, a change
	// is synced with the next change of the primary object.
	// +optional
	Watch *RelatedResourceWatch `json:"watch,omitempty"`

	// syncStatus copies the status of the original to the copy. With origin service, it needs watch. Defaults to
	// false.
	// +optional
	SyncStatus bool `json:"syncStatus,omitempty"`
}

// RelatedResourceProjection is the resource of the copy. Fields that are unset have the values of the original.
type RelatedResourceProjection struct {
	// group is the API group of the copy.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// version is the API version of the copy.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// resource is the plural name of the resource of the copy.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource,omitempty"`
}

// RelatedResourceObject defines how related objects are found. Exactly one of reference, selector and template must
// be set.
type RelatedResourceObject struct {
	RelatedResourceObjectSpec `json:",inline"`

	// namespace defines how the namespace of related objects is found. If unset, it is the namespace of the primary
	// object on each side.
	// +optional
	Namespace *RelatedResourceObjectSpec `json:"namespace,omitempty"`
}

// RelatedResourceObjectSpec finds names. Exactly one field must be set.
type RelatedResourceObjectSpec struct {
	// reference reads names from a field of the primary object, on each side.
	// +optional
	Reference *RelatedResourceObjectReference `json:"reference,omitempty"`

	// selector selects objects on the side of the origin by their labels.
	// +optional
	Selector *RelatedResourceObjectSelector `json:"selector,omitempty"`

	// template computes a name, for each side.
	// +optional
	Template *TemplateExpression `json:"template,omitempty"`
}

// RelatedResourceObjectReference reads names from a field of the primary object.
type RelatedResourceObjectReference struct {
	// path is the path of the field with the name. With a list (spec.users.#.secret), it gives several names.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`

	// regex changes each name. If unset, names are used as they are.
	// +optional
	Regex *RegularExpression `json:"regex,omitempty"`
}

// RelatedResourceObjectSelector selects objects on the side of the origin by their labels. Keys and values of
// matchLabels may be Go templates.
// +structType=atomic
type RelatedResourceObjectSelector struct {
	metav1.LabelSelector `json:",inline"`

	// rewrite computes the name of the copy from that of the original.
	// +required
	Rewrite RelatedResourceSelectorRewrite `json:"rewrite"`
}

// RelatedResourceSelectorRewrite computes the name of a copy. Exactly one field must be set.
type RelatedResourceSelectorRewrite struct {
	// regex replaces matches in the name of the original.
	// +optional
	Regex *RegularExpression `json:"regex,omitempty"`

	// template computes the name.
	// +optional
	Template *TemplateExpression `json:"template,omitempty"`
}

// RelatedResourceWatch defines which primary objects are synced when a related object changes. Exactly one field must
// be set.
// +kubebuilder:validation:XValidation:rule="has(self.byOwner) != has(self.bySelector)",message="exactly one of byOwner and bySelector must be set"
type RelatedResourceWatch struct {
	// byOwner syncs the primary objects whose copies are owners of the related object, by its owner references.
	// +optional
	ByOwner *RelatedResourceWatchByOwner `json:"byOwner,omitempty"`

	// bySelector is a label selector for primary objects. A change of a related object syncs all of them that it may
	// belong to.
	// +optional
	BySelector *metav1.LabelSelector `json:"bySelector,omitempty"`
}

// RelatedResourceWatchByOwner has no fields.
type RelatedResourceWatchByOwner struct{}

// RegularExpression replaces matches in a text.
type RegularExpression struct {
	// pattern is a regular expression in the syntax of Go. If empty, replacement replaces the whole text.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Pattern string `json:"pattern,omitempty"`

	// replacement replaces each match. $1 is the first group of pattern.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Replacement string `json:"replacement,omitempty"`
}

// TemplateExpression is a Go template that computes a name.
type TemplateExpression struct {
	// template is a Go template. Its data are .Object (the object of that side), .Side (kcp or service), .ClusterName
	// and .ClusterPath.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Template string `json:"template,omitempty"`
}
