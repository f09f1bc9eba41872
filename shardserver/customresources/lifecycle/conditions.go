package lifecycle

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
)

// decide returns a copy of a definition with the status that it should have, given the names that others have. It is a
// pure function but for the times of transitions. A condition that does not change keeps its time.
func decide(definition *apiextensions.CustomResourceDefinition, others taken) *apiextensions.CustomResourceDefinition {
	decided := &apiextensions.CustomResourceDefinition{ObjectMeta: definition.ObjectMeta, Spec: definition.Spec}
	definition.Status.DeepCopyInto(&decided.Status)
	names, met := accept(definition.Spec.Names, definition.Status.AcceptedNames, others)
	decided.Status.AcceptedNames = names
	apiextensions.SetCRDCondition(decided, namesAccepted(met))
	if condition := established(decided, met == nil); condition != nil {
		apiextensions.SetCRDCondition(decided, *condition)
	}
	if condition := nonStructural(definition); condition != nil {
		apiextensions.SetCRDCondition(decided, *condition)
	} else {
		apiextensions.RemoveCRDCondition(decided, apiextensions.NonStructuralSchema)
	}
	if condition := approved(definition); condition != nil {
		apiextensions.SetCRDCondition(decided, *condition)
	}
	return decided
}

func namesAccepted(met *conflict) apiextensions.CustomResourceDefinitionCondition {
	condition := apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.NamesAccepted, Status: apiextensions.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found",
	}
	if met != nil {
		condition.Status, condition.Reason, condition.Message = apiextensions.ConditionFalse, met.reason, met.err.Error()
	}
	return condition
}

// established returns the condition to set, or nil if it stays: what was established once stays so, whatever becomes of
// its names later. There is no delay between the two conditions, as nothing but this shard serves the definition.
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

// validBundle tells whether the CA of a conversion webhook, if there is one, can be used.
func validBundle(definition *apiextensions.CustomResourceDefinition) bool {
	conversion := definition.Spec.Conversion
	if conversion == nil || conversion.WebhookClientConfig == nil {
		return true
	}
	return len(webhook.ValidateCABundle(field.NewPath(""), conversion.WebhookClientConfig.CABundle)) == 0
}

// nonStructural returns the condition of a definition that was stored before its schema had to be structural, or nil.
// Version v1 of the API accepts no such definition; only one that keeps unknown fields may have been let through once.
func nonStructural(definition *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinitionCondition {
	if keep := definition.Spec.PreserveUnknownFields; keep == nil || !*keep {
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

// approvals say what each state of the annotation means for the condition.
var approvals = map[apihelpers.APIApprovalState]struct {
	status apiextensions.ConditionStatus
	reason string
}{
	apihelpers.APIApprovalInvalid:  {apiextensions.ConditionFalse, "InvalidAnnotation"},
	apihelpers.APIApprovalMissing:  {apiextensions.ConditionFalse, "MissingAnnotation"},
	apihelpers.APIApproved:         {apiextensions.ConditionTrue, "ApprovedAnnotation"},
	apihelpers.APIApprovalBypassed: {apiextensions.ConditionFalse, "UnapprovedAnnotation"},
}

// approved returns the condition of a definition in a group of the Kubernetes project, or nil for any other group.
func approved(definition *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinitionCondition {
	if !apihelpers.IsProtectedCommunityGroup(definition.Spec.Group) {
		return nil
	}
	state, message := apihelpers.GetAPIApprovalState(definition.Annotations)
	approval, known := approvals[state]
	if !known {
		approval.status, approval.reason = apiextensions.ConditionUnknown, "UnknownAnnotation"
	}
	return &apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.KubernetesAPIApprovalPolicyConformant, Status: approval.status, Reason: approval.reason, Message: message,
	}
}
