// Package v1alpha1 holds the kinds of the group operator.kcp.io: what a user writes to have a kcp installation run on a
// Kubernetes cluster, and what the operator reports back. Fields, enums and column names follow the manifests that
// already exist for this group, so those apply unchanged; what Atoll adds is optional and said so in the field's text.
//
// Only types, their constants and generated code live here. Defaults are not written into objects: where a field is
// left out, its text describes the default. Nothing in this package imports more than k8s.io/api and
// k8s.io/apimachinery, so that importers get no server code.
//
// The first lines of every field's comment are what `kubectl explain` shows: longer descriptions are cut at a sentence,
// which keeps each CustomResourceDefinition small enough for a plain `kubectl apply`.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kcp.io
package v1alpha1
