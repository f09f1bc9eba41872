package runtimecluster

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/atoll-dev/atoll/infrastructure/shortname"
	"github.com/atoll-dev/atoll/internal/expression"
)

// InvalidError means that no cluster accepts an object. Clients reject some of these objects themselves, with errors that cannot be
// distinguished from those of an unreachable cluster.
type InvalidError struct{ error }

func (e *InvalidError) Unwrap() error { return e.error }

// ValidateTemplate returns errors for an object of a Template that every API server would refuse, whatever the values of its expressions.
// group is the API group of the provider. Backends validate required fields and expressions themselves.
func ValidateTemplate(object map[string]any, group string, at *field.Path) field.ErrorList {
	return (&validator{group: group, hasExpressions: true}).object(&unstructured.Unstructured{Object: object}, at)
}

// validate returns an InvalidError if no cluster accepts the object.
func (c *Cluster) validate(object *unstructured.Unstructured) error {
	errs := (&validator{group: c.Group}).object(object, nil)
	if object.GetName() == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), "an object has a name, which is a text"))
	}
	if len(errs) == 0 {
		return nil
	}
	return &InvalidError{fmt.Errorf("%s %s: %w", object.GetKind(), abbreviate(object.GetName()), errs.ToAggregate())}
}

// validateName returns an InvalidError if objects of a kind cannot have that name. An empty name, or one with a slash, would address
// another resource.
func validateName(gvk schema.GroupVersionKind, name string) error {
	problems := []string{"is empty"}
	if name != "" {
		problems = (&validator{}).name(gvk, name)
	}
	if len(problems) == 0 {
		return nil
	}
	return &InvalidError{fmt.Errorf("%s: name %q: %s", gvk.Kind, abbreviate(name), strings.Join(problems, "; "))}
}

// maxQuoted bounds the bytes of a value in an error: tenants write values, and errors are logged.
const maxQuoted = 100

func abbreviate(text string) string { return shortname.Truncate(text, maxQuoted) }

// validator validates the parts of objects that API servers validate alike in all versions.
type validator struct {
	group string
	// hasExpressions means that texts may contain expressions between "${" and "}", whose values are unknown.
	hasExpressions bool
}

// check returns the problems of a text of at most maximum bytes. It validates "a" in place of each expression, because an expression may
// result in any text.
func (v *validator) check(text string, maximum int, problems func(string) []string) []string {
	literal, sample := v.known(text)
	switch {
	case len(literal) > maximum:
		return []string{validation.MaxLenError(maximum)}
	case len(sample) > maximum: // expressions may be empty
		return nil
	}
	return problems(sample)
}

// known returns the literal part of a text, and the text with "a" in place of each expression. It handles a text with a syntax error,
// which the backend reports, as one expression.
func (v *validator) known(text string) (literal, sample string) {
	if !v.hasExpressions {
		return text, text
	}
	parts, err := expression.Split(text)
	if err != nil {
		return "", "a"
	}
	for _, part := range parts {
		if part.IsExpression {
			sample += "a"
			continue
		}
		literal, sample = literal+part.Text, sample+part.Text
	}
	return literal, sample
}

func (v *validator) object(object *unstructured.Unstructured, at *field.Path) field.ErrorList {
	value, found := object.Object["metadata"]
	metadata, ok := value.(map[string]any)
	if found && !ok {
		return field.ErrorList{field.Invalid(at.Child("metadata"), field.OmitValueType{}, "must be an object")}
	}
	gvk := object.GroupVersionKind()
	var errs field.ErrorList
	if name, ok := metadata["name"].(string); ok && name != "" {
		errs = append(errs, invalid(at.Child("metadata", "name"), name, v.name(gvk, name))...)
	}
	errs = append(errs, v.metadata(metadata, at.Child("metadata"))...)
	errs = append(errs, v.generated(gvk, metadata["annotations"], at.Child("metadata", "annotations"))...)
	switch gvk.GroupKind() {
	case corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind():
		return append(errs, v.data(object, at)...)
	}
	if slices.Contains(builtIn, gvk.Group) {
		for _, key := range slices.Sorted(maps.Keys(object.Object)) {
			if key != "metadata" {
				errs = append(errs, v.nested(object.Object[key], at.Child(key))...)
			}
		}
	}
	return errs
}

// name returns the problems of the name of an object.
func (v *validator) name(gvk schema.GroupVersionKind, name string) []string {
	maximum, problems := validation.DNS1123SubdomainMaxLength, validation.IsDNS1123Subdomain
	switch {
	case gvk.Group == rbacv1.GroupName:
		problems = content.IsPathSegmentName
	case gvk.GroupKind() == corev1.SchemeGroupVersion.WithKind("Service").GroupKind():
		maximum, problems = validation.DNS1123LabelMaxLength, validation.IsDNS1123Label
	case gvk.GroupKind() == batchv1.SchemeGroupVersion.WithKind("CronJob").GroupKind():
		maximum = cronJobMaxLength
	}
	return v.check(name, maximum, problems)
}

// cronJobMaxLength is the limit for names of CronJobs, which are prefixes of the names of their Jobs.
const cronJobMaxLength = 52

// metadata validates labels and annotations.
func (v *validator) metadata(metadata map[string]any, at *field.Path) field.ErrorList {
	errs := v.labels(metadata["labels"], at.Child("labels"))
	annotations, size := at.Child("annotations"), 0
	isName := func(key string) []string { return validation.IsQualifiedName(strings.ToLower(key)) }
	errs = append(errs, v.texts(metadata["annotations"], annotations, isName, func(key, value string) []string {
		literal, _ := v.known(value)
		size += len(key) + len(literal)
		return nil
	})...)
	if size > apivalidation.TotalAnnotationSizeLimitB {
		errs = append(errs, field.TooLong(annotations, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

func (v *validator) labels(labels any, at *field.Path) field.ErrorList {
	return v.texts(labels, at, validation.IsQualifiedName, func(_, value string) []string {
		return v.check(value, validation.LabelValueMaxLength, validation.IsValidLabelValue)
	})
}

// texts validates a map of texts. A value that consists of one expression becomes a text when it is evaluated.
func (v *validator) texts(value any, at *field.Path, ofKey func(string) []string, ofValue func(key, value string) []string) field.ErrorList {
	entries, ok := value.(map[string]any)
	if !ok && value != nil && !v.isExpression(value) {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must be an object")}
	}
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		of := at.Key(abbreviate(key))
		if !v.isExpression(key) { // backends refuse expressions in keys
			errs = append(errs, invalid(of, key, ofKey(key))...)
		}
		text, isText := entries[key].(string)
		if !isText && entries[key] != nil {
			errs = append(errs, field.Invalid(of, field.OmitValueType{}, "must be a text; write it in quotes"))
			continue
		}
		errs = append(errs, invalid(of, text, ofValue(key, text))...)
	}
	return errs
}

func (v *validator) isExpression(value any) bool {
	text, ok := value.(string)
	return ok && v.hasExpressions && strings.Contains(text, "${")
}

func invalid(at *field.Path, value string, problems []string) (errs field.ErrorList) {
	for _, problem := range problems {
		errs = append(errs, field.Invalid(at, abbreviate(value), problem))
	}
	return errs
}

// generated validates the annotation for generated values.
func (v *validator) generated(gvk schema.GroupVersionKind, annotations any, at *field.Path) field.ErrorList {
	entries, _ := annotations.(map[string]any)
	name := v.group + "/" + annotationGenerate
	keys, _ := entries[name].(string)
	switch {
	case keys == "":
		return nil
	case gvk != corev1.SchemeGroupVersion.WithKind("Secret"):
		return field.ErrorList{field.Forbidden(at.Key(name), "only Secrets have generated values")}
	case v.isExpression(keys):
		return nil
	}
	var errs field.ErrorList
	for key := range strings.SplitSeq(keys, ",") {
		errs = append(errs, invalid(at.Key(name), key, validation.IsConfigMapKey(key))...)
	}
	return errs
}

// data validates the content of a Secret or of a ConfigMap.
func (v *validator) data(object *unstructured.Unstructured, at *field.Path) field.ErrorList {
	isSecret := object.GetKind() == "Secret"
	var errs field.ErrorList
	for _, name := range []string{"data", "stringData", "binaryData"} {
		isEncoded := name == "binaryData" || name == "data" && isSecret
		errs = append(errs, v.texts(object.Object[name], at.Child(name), validation.IsConfigMapKey, func(_, value string) []string {
			if _, err := base64.StdEncoding.DecodeString(value); isEncoded && err != nil && !v.isExpression(value) {
				return []string{"must be in base64"}
			}
			return nil
		})...)
	}
	return errs
}

// builtIn are API groups in which fields with these names have their usual meaning; in other groups they may contain anything.
var builtIn = []string{"", "apps", "autoscaling", "batch", "networking.k8s.io", "policy"}

// nested validates metadata and labels within an object, such as those of the pod template of a Deployment.
func (v *validator) nested(value any, at *field.Path) (errs field.ErrorList) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			child := at.Child(key)
			switch metadata, isObject := value[key].(map[string]any); {
			case key == "metadata" && isObject:
				errs = append(errs, v.metadata(metadata, child)...)
			case key == "matchLabels", key == "nodeSelector":
				errs = append(errs, v.labels(value[key], child)...)
			default:
				errs = append(errs, v.nested(value[key], child)...)
			}
		}
	case []any:
		for i := range value {
			errs = append(errs, v.nested(value[i], at.Index(i))...)
		}
	}
	return errs
}
