package publication

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// samplePlaceholders replaces placeholders by valid sample values.
var samplePlaceholders = strings.NewReplacer( // the longer ones first
	"$remoteClusterName", "a",
	"$remoteNamespaceHash", "a",
	"$remoteNamespace", "a",
	"$remoteNameHash", "a",
	"$remoteName", "a",
)

func validateNaming(spec *syncagentv1alpha1.PublishedResourceSpec, fldPath *field.Path) field.ErrorList {
	if spec.Naming == nil {
		return nil
	}
	isName := validation.IsDNS1123Subdomain
	if spec.Resource.APIGroup == "rbac.authorization.k8s.io" {
		isName = content.IsPathSegmentName
	}
	errs := validateNamingPattern(spec.Naming.Name, isName, fldPath.Child("name"))
	return append(errs, validateNamingPattern(spec.Naming.Namespace, validation.IsDNS1123Label, fldPath.Child("namespace"))...)
}

// validateNamingPattern validates a template, or a text with placeholders. Unknown placeholders remain, so the result is not a valid
// name.
func validateNamingPattern(pattern string, isName func(string) []string, fldPath *field.Path) field.ErrorList {
	if isTemplate(pattern) {
		return optional(pattern, compilesAsTemplate, fldPath)
	}
	return optional(pattern, func(pattern string) []string { return isName(samplePlaceholders.Replace(pattern)) }, fldPath)
}

func isTemplate(text string) bool { return strings.Contains(text, "{{") }

func validateMutation(mutation *syncagentv1alpha1.ResourceMutationSpec, fldPath *field.Path) field.ErrorList {
	if mutation == nil {
		return nil
	}
	errs := validateSteps(mutation.Spec, fldPath.Child("spec"))
	return append(errs, validateSteps(mutation.Status, fldPath.Child("status"))...)
}

func validateSteps(steps []syncagentv1alpha1.ResourceMutation, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range steps {
		errs = append(errs, validateStep(&steps[i], fldPath.Index(i))...)
	}
	return errs
}

// validateStep accepts several mutations in one step, because the contract defines their order of precedence.
func validateStep(step *syncagentv1alpha1.ResourceMutation, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if step.Delete == nil && step.Regex == nil && step.Template == nil && step.CEL == nil {
		return field.ErrorList{field.Required(fldPath, "set one of delete, regex, template and cel")}
	}
	if step.Delete != nil {
		errs = append(errs, required(step.Delete.Path, isWritePath, fldPath.Child("delete", "path"))...)
	}
	if step.Regex != nil {
		errs = append(errs, required(step.Regex.Path, isWritePath, fldPath.Child("regex", "path"))...)
		errs = append(errs, optional(step.Regex.Pattern, compilesAsPattern, fldPath.Child("regex", "pattern"))...)
	}
	if step.Template != nil {
		errs = append(errs, required(step.Template.Path, isWritePath, fldPath.Child("template", "path"))...)
		errs = append(errs, optional(step.Template.Template, compilesAsTemplate, fldPath.Child("template", "template"))...)
	}
	if step.CEL != nil {
		errs = append(errs, required(step.CEL.Path, isWritePath, fldPath.Child("cel", "path"))...)
		errs = append(errs, required(step.CEL.Expression, compilesAsCEL, fldPath.Child("cel", "expression"))...)
	}
	return errs
}
