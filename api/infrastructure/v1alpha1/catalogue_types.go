package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Catalogue offers some Templates to some users, through an APIExport of its own. Who binds another APIExport neither sees them nor
// can create instances.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=infrastructure
// +kubebuilder:printcolumn:name="Export",type=string,JSONPath=`.spec.export`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Catalogue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the catalogue offers.
	// +required
	Spec CatalogueSpec `json:"spec"`

	// status is the observed state.
	// +optional
	// +kubebuilder:default={}
	Status CatalogueStatus `json:"status,omitzero"`
}

// CatalogueList is a list of Catalogues.
// +kubebuilder:object:root=true
type CatalogueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Catalogue `json:"items"`
}

// CatalogueSpec is the desired state of a Catalogue.
type CatalogueSpec struct {
	// export is the name of the APIExport, which is created.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="export cannot be changed"
	Export string `json:"export"`

	// templateSelector selects the Templates by their labels; one without requirements selects all.
	// +required
	TemplateSelector metav1.LabelSelector `json:"templateSelector"`

	// binders are the groups of users who may bind the export.
	// +optional
	// +listType=set
	Binders []string `json:"binders,omitempty"`
}

// CatalogueStatus is the observed state of a Catalogue.
type CatalogueStatus struct {
	// observedGeneration is the generation that the conditions are about, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
