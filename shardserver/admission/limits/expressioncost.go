package limits

import (
	"context"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/celcost"
	"github.com/atoll-dev/atoll/shardserver/admission/apis"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

// expressionCost refuses new expressions of policies, webhooks, definitions and schemas that exceed their cost limit in
// every evaluation. The estimates of Kubernetes, which it also applies, count the elements of a value, not the size
// of each. Expressions that an object has already are kept, so that it can be repaired.
type expressionCost struct{ *admission.Handler }

// NewExpressionCost returns the plug-in kcp.io/ExpressionCost.
func NewExpressionCost(rules.Config) admission.Interface {
	return expressionCost{admission.NewHandler(admission.Create, admission.Update)}
}

// Validate implements admission.ValidationInterface.
func (expressionCost) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	known := sets.New[string]()
	if a.GetOldObject() != nil {
		for _, e := range expressionsOf(a.GetOldObject()) {
			known.Insert(e.text)
		}
	}
	if errs := checkExpressions(expressionsOf(a.GetObject()), known, celconfig.PerCallLimit); len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
	}
	return nil
}

// expression is an expression of an object.
type expression struct {
	path *field.Path
	text string
	// variable is the name by which later expressions of the object refer to it; empty for others.
	variable string
}

func checkExpressions(all []expression, known sets.Set[string], limit uint64) (errs field.ErrorList) {
	variables := map[string]celcost.Estimate{}
	for _, e := range all {
		estimate, err := celcost.EstimateVariable(e.text, limit, variables)
		if err != nil && !known.Has(e.text) {
			errs = append(errs, field.Invalid(e.path, e.text, err.Error()))
		}
		if e.variable != "" {
			variables[e.variable] = estimate
		}
	}
	return errs
}

// expressionsOf returns the expressions of an object, variables before those that may use them.
func expressionsOf(object runtime.Object) []expression {
	switch o := object.(type) {
	case *admissionregistration.ValidatingAdmissionPolicy:
		return validatingPolicyExpressions(&o.Spec)
	case *admissionregistration.MutatingAdmissionPolicy:
		return mutatingPolicyExpressions(&o.Spec)
	case *admissionregistration.ValidatingWebhookConfiguration:
		var all []expression
		for i, webhook := range o.Webhooks {
			all = append(all, matchConditions(webhook.MatchConditions, field.NewPath("webhooks").Index(i))...)
		}
		return all
	case *admissionregistration.MutatingWebhookConfiguration:
		var all []expression
		for i, webhook := range o.Webhooks {
			all = append(all, matchConditions(webhook.MatchConditions, field.NewPath("webhooks").Index(i))...)
		}
		return all
	case *apiextensions.CustomResourceDefinition:
		return definitionExpressions(o)
	case *apisv1alpha1.APIResourceSchema:
		definition, err := apis.DefinitionOf(o)
		if err != nil {
			return nil // refused by the plug-in of schemas
		}
		return definitionExpressions(definition)
	}
	return nil
}

func matchConditions(conditions []admissionregistration.MatchCondition, path *field.Path) []expression {
	all := make([]expression, 0, len(conditions))
	for i, condition := range conditions {
		all = append(all, expression{path: path.Child("matchConditions").Index(i).Child("expression"), text: condition.Expression})
	}
	return all
}

func variables(declared []admissionregistration.Variable, path *field.Path) []expression {
	all := make([]expression, 0, len(declared))
	for i, variable := range declared {
		all = append(all, expression{path.Child("variables").Index(i).Child("expression"), variable.Expression, variable.Name})
	}
	return all
}

func validatingPolicyExpressions(spec *admissionregistration.ValidatingAdmissionPolicySpec) []expression {
	path := field.NewPath("spec")
	all := append(variables(spec.Variables, path), matchConditions(spec.MatchConditions, path)...)
	for i, validation := range spec.Validations {
		at := path.Child("validations").Index(i)
		all = append(all, expression{path: at.Child("expression"), text: validation.Expression}, expression{path: at.Child("messageExpression"), text: validation.MessageExpression})
	}
	for i, annotation := range spec.AuditAnnotations {
		all = append(all, expression{path: path.Child("auditAnnotations").Index(i).Child("valueExpression"), text: annotation.ValueExpression})
	}
	return all
}

func mutatingPolicyExpressions(spec *admissionregistration.MutatingAdmissionPolicySpec) []expression {
	path := field.NewPath("spec")
	all := append(variables(spec.Variables, path), matchConditions(spec.MatchConditions, path)...)
	for i, mutation := range spec.Mutations {
		at := path.Child("mutations").Index(i)
		if mutation.ApplyConfiguration != nil {
			all = append(all, expression{path: at.Child("applyConfiguration", "expression"), text: mutation.ApplyConfiguration.Expression})
		}
		if mutation.JSONPatch != nil {
			all = append(all, expression{path: at.Child("jsonPatch", "expression"), text: mutation.JSONPatch.Expression})
		}
	}
	return all
}

func definitionExpressions(definition *apiextensions.CustomResourceDefinition) []expression {
	spec := field.NewPath("spec")
	var all []expression
	if definition.Spec.Validation != nil {
		all = schemaExpressions(definition.Spec.Validation.OpenAPIV3Schema, spec.Child("validation", "openAPIV3Schema"))
	}
	for i, version := range definition.Spec.Versions {
		if version.Schema != nil {
			all = append(all, schemaExpressions(version.Schema.OpenAPIV3Schema, spec.Child("versions").Index(i).Child("schema", "openAPIV3Schema"))...)
		}
	}
	return all
}

// schemaExpressions returns the rules of a schema and of the schemas in it that can have rules. The nesting of a
// definition is limited.
func schemaExpressions(schema *apiextensions.JSONSchemaProps, path *field.Path) []expression {
	if schema == nil {
		return nil
	}
	var all []expression
	for i, rule := range schema.XValidations {
		at := path.Child("x-kubernetes-validations").Index(i)
		all = append(all, expression{path: at.Child("rule"), text: rule.Rule})
		if strings.TrimSpace(rule.MessageExpression) != "" {
			all = append(all, expression{path: at.Child("messageExpression"), text: rule.MessageExpression})
		}
	}
	for name, property := range schema.Properties {
		all = append(all, schemaExpressions(&property, path.Child("properties").Key(name))...)
	}
	if schema.Items != nil {
		all = append(all, schemaExpressions(schema.Items.Schema, path.Child("items"))...)
	}
	if schema.AdditionalProperties != nil {
		all = append(all, schemaExpressions(schema.AdditionalProperties.Schema, path.Child("additionalProperties"))...)
	}
	return all
}
