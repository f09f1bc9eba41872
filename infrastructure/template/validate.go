package template

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// reserved are fields that every instance has beside its spec. Validate refuses a schema with these properties, because its author meant to
// describe the whole object.
var reserved = []string{"apiVersion", "kind", "metadata", "status"}

// Validate returns the errors in a Template that can be found without a server. group is the API group of the provider. others are all
// other Templates. owner is the name of the Template that owns the CRD of the resource, or empty. If two Templates want the same kind or
// resource, it belongs to the owner, or else to the older Template.
func Validate(t *infrastructurev1alpha1.Template, group, owner string, others []infrastructurev1alpha1.Template) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateNames(t, group, owner, others, spec.Child("instanceCRD"))
	if len(t.Name) > validation.LabelValueMaxLength { // it is a label value of all objects that belong to the Template
		errs = append(errs, field.TooLong(field.NewPath("metadata", "name"), "", validation.LabelValueMaxLength))
	}
	schema, err := parseSchema(t.Spec.Schema.Raw)
	if err != nil {
		return append(errs, field.Invalid(spec.Child("schema"), field.OmitValueType{}, err.Error()))
	}
	if schema.Type != "object" {
		errs = append(errs, field.Invalid(spec.Child("schema", "type"), schema.Type, "must be object"))
	}
	for _, name := range reserved {
		if _, ok := schema.Properties[name]; ok {
			errs = append(errs, field.Forbidden(spec.Child("schema", "properties").Key(name), "is reserved: the schema is that of spec, not of the whole object"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return validateDefinition(t, spec.Child("schema"))
}

func validateNames(t *infrastructurev1alpha1.Template, group, owner string, others []infrastructurev1alpha1.Template, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := t.Spec.InstanceCRD
	if names.Group != group {
		errs = append(errs, field.Invalid(path.Child("group"), names.Group, "must be "+group+", the API group of this provider"))
	}
	if slices.Contains(catalogueNames, names.Resource) {
		errs = append(errs, field.Forbidden(path.Child("resource"), "is reserved for the catalogue"))
	}
	if slices.Contains(catalogueNames, singularName(&names)) || slices.Contains(catalogueNames, strings.TrimSuffix(singularName(&names), "list")) {
		errs = append(errs, field.Forbidden(path.Child("kind"), "is reserved for the catalogue"))
	}
	if slices.Contains(t.Spec.RetiredVersions, names.Version) {
		errs = append(errs, field.Invalid(path.Child("version"), names.Version, "is in retiredVersions"))
	}
	for i := range others {
		other := &others[i]
		if other.UID == t.UID || !precedes(other, t, owner) {
			continue
		}
		taken := namesOf(&other.Spec.InstanceCRD)
		if slices.Contains(taken, names.Resource) {
			errs = append(errs, field.Duplicate(path.Child("resource"), fmt.Sprintf("%s, of Template %s", names.Resource, other.Name)))
		}
		switch {
		case slices.Contains(taken, names.Kind):
			errs = append(errs, field.Duplicate(path.Child("kind"), fmt.Sprintf("%s, of Template %s", names.Kind, other.Name)))
		case slices.Contains(taken, listKind(&names)):
			errs = append(errs, field.Duplicate(path.Child("kind"), fmt.Sprintf("%s (its list kind), of Template %s", listKind(&names), other.Name)))
		case slices.Contains(taken, singularName(&names)):
			errs = append(errs, field.Duplicate(path.Child("kind"), fmt.Sprintf("%s (its singular name), of Template %s", singularName(&names), other.Name)))
		}
	}
	return errs
}

// catalogueNames are the resource, singular and short names of Templates and Catalogues.
var catalogueNames = []string{"templates", "template", "tmpl", "catalogues", "catalogue"}

// namesOf returns all names of a kind. An API server accepts each of them once in a group: a kind can equal the list kind of another one, and
// a resource the singular name of another one.
func namesOf(names *infrastructurev1alpha1.InstanceCRD) []string {
	return []string{names.Resource, singularName(names), names.Kind, listKind(names)}
}

func singularName(names *infrastructurev1alpha1.InstanceCRD) string {
	return strings.ToLower(names.Kind)
}

func listKind(names *infrastructurev1alpha1.InstanceCRD) string { return names.Kind + "List" }

// precedes orders Templates: the owner of the CRD comes first, else the one that was created first. Names break ties, because creation
// timestamps have a resolution of seconds.
func precedes(a, b *infrastructurev1alpha1.Template, owner string) bool {
	switch owner {
	case a.Name:
		return true
	case b.Name:
		return false
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// validateDefinition validates the CRD with the code of an API server, so that the controller writes nothing for a schema that is not
// structural or has rules that do not compile.
func validateDefinition(t *infrastructurev1alpha1.Template, path *field.Path) field.ErrorList {
	definition, err := Definition(t, nil)
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, internal, nil); err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}
	internal.Status.StoredVersions = []string{t.Spec.InstanceCRD.Version}
	var errs field.ErrorList
	for _, err := range apiextensionsvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
		errs = append(errs, locate(err, path))
	}
	return errs
}

// locate maps an error about a CRD to the field of the Template.
func locate(err *field.Error, path *field.Path) *field.Error {
	located := *err
	names := field.NewPath("spec", "instanceCRD").String()
	if _, inner, ok := strings.Cut(err.Field, ".openAPIV3Schema.properties[spec]"); ok {
		located.Field = path.String() + inner
		return &located
	}
	switch {
	case strings.HasSuffix(err.Field, ".openAPIV3Schema"): // the schema as a whole
		located.Field = path.String()
	case strings.HasPrefix(err.Field, "spec.names.plural"), err.Field == "metadata.name":
		located.Field = names + ".resource"
	case strings.HasPrefix(err.Field, "spec.names"):
		located.Field = names + ".kind"
	}
	return &located
}
