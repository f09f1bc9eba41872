package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Catalogue offers selected Templates through an APIExport of its own. Workspaces that bind another APIExport do not
// see these Templates, and cannot create instances of them.
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

	// spec defines what the catalogue offers, and to whom.
	// +required
	Spec CatalogueSpec `json:"spec"`

	// status is the observed state of the catalogue.
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
	// export is the name of the APIExport that the provider creates for the catalogue. Immutable.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="export cannot be changed"
	Export string `json:"export"`

	// templateSelector selects Templates by their labels. An empty selector selects all. If it is invalid, the
	// condition Ready is False, and the export keeps what it had.
	// +required
	TemplateSelector metav1.LabelSelector `json:"templateSelector"`

	// binders are groups whose users may bind the export, such as system:authenticated. If empty, only users may bind
	// it who are granted that by other means.
	// +optional
	// +listType=set
	Binders []string `json:"binders,omitempty"`
}

// CatalogueStatus is the observed state of a Catalogue.
type CatalogueStatus struct {
	// observedGeneration is the generation of the spec that the conditions describe, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions describe the state of the catalogue; Ready is the only one.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
