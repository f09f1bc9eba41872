package syncerview

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// compile validates the description and sets the selectors of its filters.
func (v *View) compile(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, sources := map[schema.GroupResource]bool{}, map[schema.GroupResource]bool{}
	addName := func(name metav1.GroupResource, path *field.Path) {
		errs = append(errs, validateResource(name.Group, name.Resource, path)...)
		gr := schema.GroupResource{Group: name.Group, Resource: name.Resource}
		if names[gr] {
			errs = append(errs, field.Duplicate(path, gr.String()))
		}
		names[gr] = true
	}
	for i := range v.Resources {
		resource, path := &v.Resources[i], path.Child("resources").Index(i)
		addName(resource.GroupResource, path)
		errs = append(errs, resource.Source.validate(path.Child("source"))...)
		if source := resource.Source.GroupResource(); sources[source] {
			errs = append(errs, field.Duplicate(path.Child("source"), source.String()))
		}
		sources[resource.Source.GroupResource()] = true
		errs = append(errs, resource.compile(path.Child("filter"))...)
	}
	for i, name := range v.Related {
		addName(name, path.Child("related").Index(i))
	}
	return errs
}

// compile sets the selectors of the filter.
func (r *Resource) compile(path *field.Path) field.ErrorList {
	if r.Filter == nil {
		return nil
	}
	var errs field.ErrorList
	compile := func(selector *metav1.LabelSelector, path *field.Path) labels.Selector {
		found := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
		if errs = append(errs, found...); selector == nil || len(found) > 0 {
			return nil
		}
		compiled, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			errs = append(errs, field.Invalid(path, selector, err.Error()))
			return nil
		}
		if compiled.Empty() {
			return nil
		}
		return compiled
	}
	r.Objects = compile(r.Filter.Resource, path.Child("resource"))
	r.Namespaces = compile(r.Filter.Namespace, path.Child("namespace"))
	return errs
}

func (s Source) validate(path *field.Path) field.ErrorList {
	errs := validateResource(s.Group, s.Resource, path)
	for _, text := range validation.IsDNS1035Label(strings.ToLower(s.Kind)) {
		errs = append(errs, field.Invalid(path.Child("kind"), s.Kind, text))
	}
	seen := map[string]bool{}
	for from, to := range s.Versions {
		path := path.Child("versions").Key(from)
		for _, text := range append(validation.IsDNS1035Label(from), validation.IsDNS1035Label(to)...) {
			errs = append(errs, field.Invalid(path, to, text))
		}
		if seen[to] {
			errs = append(errs, field.Duplicate(path, to))
		}
		seen[to] = true
	}
	return errs
}

func validateResource(group, resource string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, text := range validation.IsDNS1035Label(resource) {
		errs = append(errs, field.Invalid(path.Child("resource"), resource, text))
	}
	if group == "" {
		return errs
	}
	for _, text := range validation.IsDNS1123Subdomain(group) {
		errs = append(errs, field.Invalid(path.Child("group"), group, text))
	}
	return errs
}
