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

// In system:bound-crds definitions are made of the schemas of exports (contract 4.6). They have the schema's UID for a
// name, and their group may be one that belongs to Kubernetes. All else about them is validated as everywhere.

// placeholderDomain makes of the groups that no definition of a tenant may have one that it may.
const placeholderDomain = ".placeholder"

// creating and updating are the stock strategies but for this.
type (
	creating struct{ rest.RESTCreateStrategy }
	updating struct{ rest.RESTUpdateStrategy }
)

// Validate implements rest.RESTCreateStrategy.
func (s creating) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.RESTCreateStrategy.Validate(ctx, validated(ctx, obj))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s updating) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.RESTUpdateStrategy.ValidateUpdate(ctx, validated(ctx, obj), validated(ctx, old))
}

// validated returns the definition to validate for one: itself, and in system:bound-crds one that is called as those of
// tenants are.
func validated(ctx context.Context, obj runtime.Object) runtime.Object {
	definition, ok := obj.(*apiextensions.CustomResourceDefinition)
	if cluster, _ := logicalcluster.From(ctx); !ok || cluster != logicalcluster.BoundCRDs {
		return obj
	}
	named := *definition // what is shared with it is not written to
	if named.Spec.Group == "" {
		named.Spec.Group = "core"
	}
	if !strings.Contains(named.Spec.Group, ".") {
		named.Spec.Group += placeholderDomain
	}
	named.Name = named.Spec.Names.Plural + "." + named.Spec.Group
	return &named
}
