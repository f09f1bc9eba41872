// Package v1alpha1 contains the operator.kcp.io/v1alpha1 API, which describes the desired and the observed state of kcp
// installations on a Kubernetes cluster. Fields, enums and printer columns are compatible with existing manifests of
// this group. Additions of Atoll are optional and marked as such in the description of the field.
//
// The package contains only types, constants and generated code. Defaults are not written into objects; the description
// of a field states its default. The package imports only k8s.io/api and k8s.io/apimachinery, so that importers do not
// depend on server code.
//
// The descriptions in the CustomResourceDefinitions, which kubectl explain shows, contain only the first lines of a
// comment, cut at the end of a sentence. This keeps each CustomResourceDefinition small enough for a client-side apply.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kcp.io
package v1alpha1
