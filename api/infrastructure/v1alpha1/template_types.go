package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Template is an entry of the catalogue: it defines a kind that tenants create instances of, and the backend that provides
// them.
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

	// spec is what the template offers.
	// +required
	Spec TemplateSpec `json:"spec"`

	// status is the observed state.
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
	// displayName is the name that people read.
	// +required
	// +kubebuilder:validation:MaxLength=128
	DisplayName string `json:"displayName"`

	// description says what an instance is.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Description string `json:"description,omitempty"`

	// category groups templates; by default, Other.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Category string `json:"category,omitempty"`

	// version is the semantic version of the content of the template.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version"`

	// iconURL is the address of an icon.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	IconURL string `json:"iconURL,omitempty"`

	// backend is the name of the backend that provides instances.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9-]*$`
	Backend string `json:"backend"`

	// instanceCRD names the kind of the instances.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.group == oldSelf.group && self.kind == oldSelf.kind && self.resource == oldSelf.resource",message="group, kind and resource cannot be changed"
	InstanceCRD InstanceCRD `json:"instanceCRD"`

	// schema is the OpenAPI v3 schema of spec of instances. Its type is object.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Schema runtime.RawExtension `json:"schema"`

	// retiredVersions are versions of the kind that shall no longer be served. A version with stored instances is kept.
	// +optional
	// +listType=set
	RetiredVersions []string `json:"retiredVersions,omitempty"`

	// backendConfig is read by the backend only. Tenants do not see it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	BackendConfig *runtime.RawExtension `json:"backendConfig,omitempty"`

	// sampleValues is an example of spec of an instance.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	SampleValues *runtime.RawExtension `json:"sampleValues,omitempty"`

	// agent is guidance for programs that create instances for people.
	// +optional
	Agent *AgentGuidance `json:"agent,omitempty"`

	// exposure says who may connect to instances. It is kept for other programs and has no effect: instances are as the backend makes them.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Exposure *runtime.RawExtension `json:"exposure,omitempty"`

	// view says how clients show instances. It is kept for other programs and has no effect.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	View *runtime.RawExtension `json:"view,omitempty"`

	// dataPlane says how clients connect to instances. It is kept for other programs and has no effect. Tenants do not see it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	DataPlane *runtime.RawExtension `json:"dataPlane,omitempty"`

	// development says how instances are developed. It is kept for other programs and has no effect. Tenants do not see it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Development *runtime.RawExtension `json:"development,omitempty"`
}

// InstanceCRD names the kind of the instances of a Template.
type InstanceCRD struct {
	// group is the API group of the provider.
	// +required
	Group string `json:"group"`

	// version is the version that new instances are created in.
	// +required
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`
	Version string `json:"version"`

	// kind is the kind.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind"`

	// resource is the plural name, which need not be an English plural.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9]*$`
	Resource string `json:"resource"`
}

// AgentGuidance is guidance for programs that create instances for people.
type AgentGuidance struct {
	// usage says when and how to use the template.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Usage string `json:"usage,omitempty"`

	// prerequisites are what must be there before an instance is created.
	// +optional
	// +listType=atomic
	Prerequisites []string `json:"prerequisites,omitempty"`

	// outputs are the fields of status that a client reads.
	// +optional
	// +listType=atomic
	Outputs []string `json:"outputs,omitempty"`
}

// TemplateStatus is the observed state of a Template.
type TemplateStatus struct {
	// observedGeneration is the generation that was last processed completely, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// registered says what has been published of the kind.
	// +optional
	Registered RegisteredStatus `json:"registered,omitzero"`

	// backend is what the backend says.
	// +optional
	Backend BackendStatus `json:"backend,omitzero"`

	// conditions are CRDEstablished, SchemaInAPIExport, SchemaCompatible, BackendReady and Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RegisteredStatus says what has been published of the kind of a Template.
type RegisteredStatus struct {
	// crdEstablished means that the definition of the kind is established.
	// +optional
	CRDEstablished bool `json:"crdEstablished"`

	// schemaInAPIExport means that the export has the current schema.
	// +optional
	SchemaInAPIExport bool `json:"schemaInAPIExport"`

	// schemaName is the name of the current APIResourceSchema.
	// +optional
	SchemaName string `json:"schemaName,omitempty"`

	// exports are the APIExports that list the kind.
	// +optional
	// +listType=set
	Exports []string `json:"exports,omitempty"`

	// versions are the versions that are served.
	// +optional
	// +listType=set
	Versions []string `json:"versions,omitempty"`
}

// BackendStatus is what the backend of a Template says.
type BackendStatus struct {
	// name is the name of the backend that provides the instances.
	// +optional
	Name string `json:"name,omitempty"`

	// replacedBy is the name of the backend that takes over. Until it does, the present one removes what it made for instances.
	// +optional
	ReplacedBy string `json:"replacedBy,omitempty"`

	// ready means that instances can be provided.
	// +optional
	Ready bool `json:"ready"`

	// message says why not.
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
