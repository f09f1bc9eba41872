package apiextensions

import (
	"context"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// placeholderDomain completes groups that the upstream validation refuses.
const placeholderDomain = ".placeholder"

// groupsWithoutDot are groups of Kubernetes that predate the rule that groups are domains. None of them is compiled in.
var groupsWithoutDot = sets.New("apps", "autoscaling", "batch", "extensions", "policy")

// IsGroupWithoutDot returns whether a group may be that of a definition or a schema although it is no domain.
func IsGroupWithoutDot(group string) bool { return groupsWithoutDot.Has(group) }

// createStrategy and updateStrategy are the upstream strategies with a different validation of names and groups, and limits of
// the work that definitions cause.
type (
	createStrategy struct{ rest.RESTCreateStrategy }
	updateStrategy struct{ rest.RESTUpdateStrategy }
)

// Validate implements rest.RESTCreateStrategy.
func (s createStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	errs := validateWork(ctx, obj, nil)
	return append(errs, withGivenNames(s.RESTCreateStrategy.Validate(ctx, toValidate(ctx, obj)))...)
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s updateStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := validateWork(ctx, obj, old)
	return append(errs, withGivenNames(s.RESTUpdateStrategy.ValidateUpdate(ctx, toValidate(ctx, obj), toValidate(ctx, old)))...)
}

// toValidate returns the definition to validate. Definitions in system:bound-crds are created from the schemas of
// exports: their name is the UID of the schema, and their group may be one of Kubernetes. The definition to validate is
// then a copy with the name of a tenant's definition. A definition of a tenant may have a group without a dot.
func toValidate(ctx context.Context, obj runtime.Object) runtime.Object {
	definition, ok := obj.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return obj
	}
	cluster, _ := logicalcluster.From(ctx)
	bound := cluster == logicalcluster.BoundCRDs
	if !bound && !IsGroupWithoutDot(definition.Spec.Group) {
		return obj
	}
	named := *definition // a shallow copy, only its own fields are set
	if named.Spec.Group == "" {
		named.Spec.Group = "core"
	}
	if !strings.Contains(named.Spec.Group, ".") {
		named.Spec.Group += placeholderDomain
	}
	if bound {
		named.Name = named.Spec.Names.Plural + "." + named.Spec.Group
	} else {
		named.Name += placeholderDomain
	}
	return &named
}

// withGivenNames removes the placeholder from the values of errors.
func withGivenNames(errs field.ErrorList) field.ErrorList {
	for _, err := range errs {
		if value, ok := err.BadValue.(string); ok {
			err.BadValue = strings.TrimSuffix(value, placeholderDomain)
		}
	}
	return errs
}
