package v1alpha1

// ResourceMutationSpec are steps that change the content of an object on the way, in order.
type ResourceMutationSpec struct {
	// spec are the steps from the origin of an object to its copy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Spec []ResourceMutation `json:"spec,omitempty"`

	// status are the steps for the status on its way back to the origin.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Status []ResourceMutation `json:"status,omitempty"`
}

// ResourceMutation is one step; exactly one field is set. Paths are dotted, without a leading dot; numbers are indexes of
// lists.
type ResourceMutation struct {
	// delete removes a field.
	// +optional
	Delete *ResourceDeleteMutation `json:"delete,omitempty"`

	// regex replaces in the text of a field.
	// +optional
	Regex *ResourceRegexMutation `json:"regex,omitempty"`

	// template sets a field to the output of a Go template.
	// +optional
	Template *ResourceTemplateMutation `json:"template,omitempty"`

	// cel sets a field to the result of a CEL expression.
	// +optional
	CEL *ResourceCELMutation `json:"cel,omitempty"`
}

// ResourceDeleteMutation removes a field.
type ResourceDeleteMutation struct {
	// path is the field.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`
}

// ResourceRegexMutation replaces in the text of a field.
type ResourceRegexMutation struct {
	// path is the field. Values that are no strings are converted; a missing one counts as empty.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`

	// pattern is a regular expression as in Go. If it is empty, the replacement replaces the whole value.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Pattern string `json:"pattern,omitempty"`

	// replacement replaces all matches; $1 is the first group.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Replacement string `json:"replacement,omitempty"`
}

// ResourceTemplateMutation sets a field to the output of a Go template.
type ResourceTemplateMutation struct {
	// path is the field.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`

	// template is a Go template. It has .Value (the value at the path), .LocalObject (the object that is changed) and
	// .RemoteObject (its counterpart).
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Template string `json:"template"`
}

// ResourceCELMutation sets a field to the result of a CEL expression.
type ResourceCELMutation struct {
	// path is the field.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`

	// expression is a CEL expression. It has value (the value at the path), self (the object that is changed) and other
	// (its counterpart).
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Expression string `json:"expression"`
}
