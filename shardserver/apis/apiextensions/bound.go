package apiextensions

import (
	"context"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// placeholderDomain is the suffix of groups that are invalid in definitions of tenants.
const placeholderDomain = ".placeholder"

// boundCreateStrategy and boundUpdateStrategy are the upstream strategies with a different validation of definitions in
// system:bound-crds, which are created from the schemas of exports: their name is the UID of the schema, and their
// group may be one of Kubernetes.
type (
	boundCreateStrategy struct{ rest.RESTCreateStrategy }
	boundUpdateStrategy struct{ rest.RESTUpdateStrategy }
)

// Validate implements rest.RESTCreateStrategy.
func (s boundCreateStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.RESTCreateStrategy.Validate(ctx, withPlaceholderGroup(ctx, obj))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s boundUpdateStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.RESTUpdateStrategy.ValidateUpdate(ctx, withPlaceholderGroup(ctx, obj), withPlaceholderGroup(ctx, old))
}

// withPlaceholderGroup returns the definition to validate: in system:bound-crds a copy with the name of a tenant's definition.
func withPlaceholderGroup(ctx context.Context, obj runtime.Object) runtime.Object {
	definition, ok := obj.(*apiextensions.CustomResourceDefinition)
	if cluster, _ := logicalcluster.From(ctx); !ok || cluster != logicalcluster.BoundCRDs {
		return obj
	}
	named := *definition // a shallow copy, only its own fields are set
	if named.Spec.Group == "" {
		named.Spec.Group = "core"
	}
	if !strings.Contains(named.Spec.Group, ".") {
		named.Spec.Group += placeholderDomain
	}
	named.Name = named.Spec.Names.Plural + "." + named.Spec.Group
	return &named
}
