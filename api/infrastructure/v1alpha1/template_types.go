package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Template is an entry of the catalogue. It defines a kind, of which tenants create instances, and the backend that
// provides them.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tmpl,categories=infrastructure
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Category",type=string,JSONPath=`.spec.category`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.instanceCRD.kind`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Template struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines what the template offers.
	// +required
	Spec TemplateSpec `json:"spec"`

	// status is the observed state of the template.
	// +optional
	// +kubebuilder:default={}
	Status TemplateStatus `json:"status,omitzero"`
}

// TemplateList is a list of Templates.
// +kubebuilder:object:root=true
type TemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Template `json:"items"`
}

// TemplateSpec is the desired state of a Template.
type TemplateSpec struct {
	// displayName is the name of the template for people. At most 128 characters.
	// +required
	// +kubebuilder:validation:MaxLength=128
	DisplayName string `json:"displayName"`

	// description describes to people what an instance is. At most 2048 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Description string `json:"description,omitempty"`

	// category is the heading under which the catalogue lists the template. Defaults to Other.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Category string `json:"category,omitempty"`

	// version is the version of the content of the template, such as 1.2.0. Any text is accepted; the provider does
	// not compare versions.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version"`

	// iconURL is the URL of an icon for the catalogue. If unset, clients show a default.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	IconURL string `json:"iconURL,omitempty"`

	// backend is the name of the backend that provides instances, such as manifest, kro or opentofu. If the provider
	// has no such backend, the condition BackendReady is False. While there are instances, a change has no effect
	// until the Template has the annotation infrastructure.kedge.faros.sh/migrate-backend.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9-]*$`
	Backend string `json:"backend"`

	// instanceCRD names the kind of the instances. Immutable, except for its version.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.group == oldSelf.group && self.kind == oldSelf.kind && self.resource == oldSelf.resource",message="group, kind and resource cannot be changed"
	InstanceCRD InstanceCRD `json:"instanceCRD"`

	// schema is the OpenAPI v3 schema of the field spec of instances. Its type must be object. A change that could
	// make existing instances invalid is refused, with the condition SchemaCompatible: change instanceCRD.version,
	// too.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Schema runtime.RawExtension `json:"schema"`

	// retiredVersions are versions of the kind that are no longer to be served. The provider removes a version after
	// it has stored all instances in another one.
	// +optional
	// +listType=set
	RetiredVersions []string `json:"retiredVersions,omitempty"`

	// backendConfig is the configuration of the backend, which defines its fields and validates them. Tenants do not
	// see it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	BackendConfig *runtime.RawExtension `json:"backendConfig,omitempty"`

	// sampleValues is an example for the field spec of an instance.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	SampleValues *runtime.RawExtension `json:"sampleValues,omitempty"`

	// agent is guidance for programs that create instances on behalf of people.
	// +optional
	Agent *AgentGuidance `json:"agent,omitempty"`

	// exposure describes who may connect to instances. The provider stores it for other programs and does not
	// evaluate it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Exposure *runtime.RawExtension `json:"exposure,omitempty"`

	// view describes how clients show instances. The provider stores it for other programs and does not evaluate it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	View *runtime.RawExtension `json:"view,omitempty"`

	// dataPlane describes how clients connect to instances. The provider stores it for other programs and does not
	// evaluate it. Tenants do not see it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	DataPlane *runtime.RawExtension `json:"dataPlane,omitempty"`

	// development describes how instances are developed. The provider stores it for other programs and does not
	// evaluate it. Tenants do not see it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Development *runtime.RawExtension `json:"development,omitempty"`
}

// InstanceCRD names the kind of the instances of a Template.
type InstanceCRD struct {
	// group is the API group, which must be that of the provider. Immutable.
	// +required
	Group string `json:"group"`

	// version is the version of the kind that schema describes, such as v1alpha1. If it is changed, the previous
	// versions stay served as deprecated ones until retiredVersions lists them.
	// +required
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`
	Version string `json:"version"`

	// kind is the name of the kind, such as Redis. Immutable.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind"`

	// resource is the plural name of the kind in lower case, which need not be an English plural. Immutable.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9]*$`
	Resource string `json:"resource"`
}

// AgentGuidance is guidance for programs that create instances on behalf of people.
type AgentGuidance struct {
	// usage describes when and how to use the template. At most 8192 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Usage string `json:"usage,omitempty"`

	// prerequisites describe what must exist before an instance is created.
	// +optional
	// +listType=atomic
	Prerequisites []string `json:"prerequisites,omitempty"`

	// outputs are the fields of the status of an instance that a client reads.
	// +optional
	// +listType=atomic
	Outputs []string `json:"outputs,omitempty"`
}

// TemplateStatus is the observed state of a Template.
type TemplateStatus struct {
	// observedGeneration is the generation of the spec that applies to instances, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// registered describes what is published of the kind.
	// +optional
	Registered RegisteredStatus `json:"registered,omitzero"`

	// backend is the state of the backend.
	// +optional
	Backend BackendStatus `json:"backend,omitzero"`

	// conditions describe the state of the template: CRDEstablished, SchemaInAPIExport, SchemaCompatible,
	// BackendReady, and Ready, which summarizes the others.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RegisteredStatus describes what is published of the kind of a Template.
type RegisteredStatus struct {
	// crdEstablished specifies whether the CustomResourceDefinition of the kind is established.
	// +optional
	CRDEstablished bool `json:"crdEstablished"`

	// schemaInAPIExport specifies whether the APIExport has the current schema.
	// +optional
	SchemaInAPIExport bool `json:"schemaInAPIExport"`

	// schemaName is the name of the current APIResourceSchema.
	// +optional
	SchemaName string `json:"schemaName,omitempty"`

	// exports are the names of the APIExports with the kind.
	// +optional
	// +listType=set
	Exports []string `json:"exports,omitempty"`

	// versions are the versions of the kind that are served.
	// +optional
	// +listType=set
	Versions []string `json:"versions,omitempty"`
}

// BackendStatus is the state of the backend of a Template.
type BackendStatus struct {
	// name is the name of the backend that provides the instances.
	// +optional
	Name string `json:"name,omitempty"`

	// replacedBy is the name of the backend that is going to provide the instances. Unset unless spec.backend was
	// changed. Until that backend takes over, the present one removes what it has created for instances.
	// +optional
	ReplacedBy string `json:"replacedBy,omitempty"`

	// ready specifies whether the backend can provide instances.
	// +optional
	Ready bool `json:"ready"`

	// message describes why the backend is not ready.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
}

// Types of conditions of Templates.
const (
	ConditionCRDEstablished    = "CRDEstablished"
	ConditionSchemaInAPIExport = "SchemaInAPIExport"
	ConditionSchemaCompatible  = "SchemaCompatible"
	ConditionBackendReady      = "BackendReady"
	ConditionReady             = "Ready"
)

// Reasons of conditions of Templates.
const (
	ReasonReady             = "Ready"
	ReasonReconciling       = "Reconciling"
	ReasonInvalidSpec       = "InvalidSpec"
	ReasonBackendNotFound   = "BackendNotFound"
	ReasonBackendError      = "BackendError"
	ReasonBackendNotReady   = "BackendNotReady"
	ReasonCRDError          = "CRDError"
	ReasonAPIExportError    = "APIExportError"
	ReasonAwaitingEstablish = "AwaitingEstablish"
	ReasonDraining          = "Draining"
	ReasonInUse             = "InUse"
)
