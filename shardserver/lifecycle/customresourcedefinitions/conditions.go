package customresourcedefinitions

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
)

// computeStatus returns a copy of a definition with the desired status, given the accepted names of the other
// definitions of the group. Apart from transition times it is a pure function; an unchanged condition keeps its
// transition time.
func computeStatus(definition *apiextensions.CustomResourceDefinition, others nameSet) *apiextensions.CustomResourceDefinition {
	updated := &apiextensions.CustomResourceDefinition{ObjectMeta: definition.ObjectMeta, Spec: definition.Spec}
	definition.Status.DeepCopyInto(&updated.Status)
	names, conflict := acceptNames(definition.Spec.Names, definition.Status.AcceptedNames, others)
	updated.Status.AcceptedNames = names
	apiextensions.SetCRDCondition(updated, namesAccepted(conflict))
	if condition := established(updated, conflict == nil); condition != nil {
		apiextensions.SetCRDCondition(updated, *condition)
	}
	if condition := nonStructural(definition); condition != nil {
		apiextensions.SetCRDCondition(updated, *condition)
	} else {
		apiextensions.RemoveCRDCondition(updated, apiextensions.NonStructuralSchema)
	}
	if condition := apiApproval(definition); condition != nil {
		apiextensions.SetCRDCondition(updated, *condition)
	}
	return updated
}

func namesAccepted(conflict *nameConflict) apiextensions.CustomResourceDefinitionCondition {
	condition := apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.NamesAccepted, Status: apiextensions.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found",
	}
	if conflict != nil {
		condition.Status, condition.Reason, condition.Message = apiextensions.ConditionFalse, conflict.reason, conflict.err.Error()
	}
	return condition
}

// established returns the condition to set, or nil if it does not change: an established definition remains established
// when it later requests names that are not accepted. Unlike upstream there is no delay after NamesAccepted, as only
// this shard serves the definition.
func established(definition *apiextensions.CustomResourceDefinition, accepted bool) *apiextensions.CustomResourceDefinitionCondition {
	if apiextensions.IsCRDConditionTrue(definition, apiextensions.Established) {
		return nil
	}
	condition := &apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.Established, Status: apiextensions.ConditionFalse, Reason: "NotAccepted", Message: "not all names are accepted",
	}
	switch {
	case accepted && !validBundle(definition):
		condition.Reason, condition.Message = "InvalidCABundle", "The conversion webhook CABundle is invalid"
	case accepted:
		condition.Status, condition.Reason, condition.Message = apiextensions.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted"
	}
	return condition
}

// validBundle returns whether the CA bundle of the conversion webhook, if any, is valid.
func validBundle(definition *apiextensions.CustomResourceDefinition) bool {
	conversion := definition.Spec.Conversion
	if conversion == nil || conversion.WebhookClientConfig == nil {
		return true
	}
	return len(webhook.ValidateCABundle(field.NewPath(""), conversion.WebhookClientConfig.CABundle)) == 0
}

// nonStructural returns the condition of a definition whose schema is not structural, or nil. The v1 API rejects such
// definitions; only stored ones that preserve unknown fields can have such a schema.
func nonStructural(definition *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinitionCondition {
	if preserve := definition.Spec.PreserveUnknownFields; preserve == nil || !*preserve {
		return nil
	}
	violations := field.ErrorList{field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true, "must be false")}
	for i, version := range definition.Spec.Versions {
		validation, err := apiextensions.GetSchemaForVersion(definition, version.Name)
		if err != nil || validation == nil || validation.OpenAPIV3Schema == nil {
			continue
		}
		schema, err := structuralschema.NewStructural(validation.OpenAPIV3Schema)
		if err != nil {
			return &apiextensions.CustomResourceDefinitionCondition{
				Type: apiextensions.NonStructuralSchema, Status: apiextensions.ConditionUnknown, Reason: "StructuralError",
				Message: fmt.Sprintf("failed to check validation schema for version %s: %v", version.Name, err),
			}
		}
		path := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		violations = append(violations, structuralschema.ValidateStructural(path, schema)...)
	}
	return &apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.NonStructuralSchema, Status: apiextensions.ConditionTrue, Reason: "Violations",
		Message: violations.ToAggregate().Error(),
	}
}

// apiApprovals maps the states of the annotation to the condition.
var apiApprovals = map[apihelpers.APIApprovalState]struct {
	status apiextensions.ConditionStatus
	reason string
}{
	apihelpers.APIApprovalInvalid:  {apiextensions.ConditionFalse, "InvalidAnnotation"},
	apihelpers.APIApprovalMissing:  {apiextensions.ConditionFalse, "MissingAnnotation"},
	apihelpers.APIApproved:         {apiextensions.ConditionTrue, "ApprovedAnnotation"},
	apihelpers.APIApprovalBypassed: {apiextensions.ConditionFalse, "UnapprovedAnnotation"},
}

// apiApproval returns the condition of a definition in a group of the Kubernetes project, or nil for any other group.
func apiApproval(definition *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinitionCondition {
	if !apihelpers.IsProtectedCommunityGroup(definition.Spec.Group) {
		return nil
	}
	state, message := apihelpers.GetAPIApprovalState(definition.Annotations)
	approval, known := apiApprovals[state]
	if !known {
		approval.status, approval.reason = apiextensions.ConditionUnknown, "UnknownAnnotation"
	}
	return &apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.KubernetesAPIApprovalPolicyConformant, Status: approval.status, Reason: approval.reason, Message: message,
	}
}
