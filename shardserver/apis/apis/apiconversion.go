package apis

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var apiConversions = &registry.Kind[*apisv1alpha1.APIConversion]{
	Resource: apisv1alpha1.SchemeGroupVersion.WithResource("apiconversions"),
	Singular: "apiconversion",

	New:      func() *apisv1alpha1.APIConversion { return &apisv1alpha1.APIConversion{} },
	NewList:  func() runtime.Object { return &apisv1alpha1.APIConversionList{} },
	CopySpec: func(to, from *apisv1alpha1.APIConversion) { to.Spec = from.Spec },
	SameSpec: func(a, b *apisv1alpha1.APIConversion) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },

	ValidateName: validateName,
	ValidateSpec: validateConversionSpec,
}

func validateConversionSpec(conversion *apisv1alpha1.APIConversion) field.ErrorList {
	path := field.NewPath("spec", "conversions")
	if conversion.Spec.Conversions == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for i, conversion := range conversion.Spec.Conversions {
		at := path.Index(i)
		errs = append(errs, validateVersion(conversion.From, at.Child("from"))...)
		errs = append(errs, validateVersion(conversion.To, at.Child("to"))...)
		errs = append(errs, validateConversionRules(conversion.Rules, at.Child("rules"))...)
	}
	return append(errs, validateUnique(conversion.Spec.Conversions, func(conversion apisv1alpha1.APIVersionConversion) string {
		return conversion.From + " to " + conversion.To
	}, path)...)
}

func validateConversionRules(rules []apisv1alpha1.APIConversionRule, path *field.Path) field.ErrorList {
	if rules == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for i, rule := range rules {
		at := path.Index(i)
		errs = append(errs, registry.ValidateRequired(rule.Field, at.Child("field"))...)
		errs = append(errs, registry.ValidateRequired(rule.Destination, at.Child("destination"))...)
	}
	return append(errs, validateUnique(rules, func(rule apisv1alpha1.APIConversionRule) string { return rule.Destination }, path)...)
}

func validateVersion(name string, path *field.Path) field.ErrorList {
	return append(registry.ValidateRequired(name, path), registry.ValidatePattern(name, versionPattern, path)...)
}
