package v1alpha1

// ResourceMutationSpec has steps that change the content of an object while it is copied. They run in their order.
type ResourceMutationSpec struct {
	// spec are steps that change the copy before it is written.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Spec []ResourceMutation `json:"spec,omitempty"`

	// status are steps that change the status of the copy before it is written to the original.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Status []ResourceMutation `json:"status,omitempty"`
}

// ResourceMutation is a step. Exactly one field must be set. Paths have dots between their parts and no leading dot;
// numbers are indexes of lists, for example spec.items.0.name.
type ResourceMutation struct {
	// delete removes a field.
	// +optional
	Delete *ResourceDeleteMutation `json:"delete,omitempty"`

	// regex replaces matches in the text of a field.
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
	// path is the path of the field that is removed.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`
}

// ResourceRegexMutation replaces matches in the text of a field.
type ResourceRegexMutation struct {
	// path is the path of the field. Values other than strings are converted to text; a field that does not exist is
	// an empty text.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`

	// pattern is a regular expression in the syntax of Go. If empty, replacement replaces the whole text.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Pattern string `json:"pattern,omitempty"`

	// replacement replaces each match. $1 is the first group of pattern.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Replacement string `json:"replacement,omitempty"`
}

// ResourceTemplateMutation sets a field to the output of a Go template.
type ResourceTemplateMutation struct {
	// path is the path of the field that is set.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`

	// template is a Go template. Its data are .Value (the value at the path), .LocalObject (the object that is
	// changed) and .RemoteObject (its counterpart on the other side).
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Template string `json:"template"`
}

// ResourceCELMutation sets a field to the result of a CEL expression.
type ResourceCELMutation struct {
	// path is the path of the field that is set.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Path string `json:"path"`

	// expression is a CEL expression of any type. Its variables are value (the value at the path), self (the object
	// that is changed) and other (its counterpart on the other side).
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Expression string `json:"expression"`
}
