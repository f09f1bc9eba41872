package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// GroupName is the default API group of the kinds in this package.
	GroupName = "infrastructure.kedge.faros.sh"
	// Version is their API version.
	Version = "v1alpha1"
)

// SchemeGroupVersion is the default group and version.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: Version}

// AddToScheme registers the types in the default group.
func AddToScheme(scheme *runtime.Scheme) error { return AddGroupToScheme(GroupName)(scheme) }

// AddGroupToScheme returns the function that registers the types in an API group.
func AddGroupToScheme(group string) func(*runtime.Scheme) error {
	return func(scheme *runtime.Scheme) error {
		gv := schema.GroupVersion{Group: group, Version: Version}
		scheme.AddKnownTypes(gv, &Template{}, &TemplateList{}, &Catalogue{}, &CatalogueList{})
		metav1.AddToGroupVersion(scheme, gv)
		return nil
	}
}
