package publishedresource

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// warnings returns what is valid and may be more than the owner wants: related objects of the service cluster that consumers name.
func warnings(spec *syncagentv1alpha1.PublishedResourceSpec) []string {
	var all []string
	for i := range spec.Related {
		entry := &spec.Related[i]
		if entry.Origin != syncagentv1alpha1.RelatedResourceOriginService {
			continue
		}
		object := field.NewPath("spec", "related").Index(i).Child("object")
		add := func(locator *syncagentv1alpha1.RelatedResourceObjectSpec, path *field.Path) {
			for _, read := range fieldsOf(locator) {
				if isOfConsumers(read, spec.Mutation) {
					all = append(all, fmt.Sprintf("%s: consumers write %s, so they can name any object of this kind that the agent may read. "+
						"Read a field of the status or the name of the copy, restrict it with a regex, or set it in spec.mutation.spec", path, read))
				}
			}
		}
		add(&entry.Object.RelatedResourceObjectSpec, object)
		if entry.Object.Namespace != nil {
			add(entry.Object.Namespace, object.Child("namespace"))
		}
	}
	return all
}

// fieldInTemplate matches a field of the primary object in a template, or the whole object.
var fieldInTemplate = regexp.MustCompile(`\.Object((?:\.[A-Za-z0-9_]+)*)`)

// fieldsOf returns the fields of the primary object that a locator uses as they are, sorted. An empty one is the whole object.
func fieldsOf(locator *syncagentv1alpha1.RelatedResourceObjectSpec) []string {
	var templates, fields []string
	if reference := locator.Reference; reference != nil && reference.Regex == nil {
		fields = append(fields, reference.Path)
	}
	if locator.Template != nil {
		templates = append(templates, locator.Template.Template)
	}
	if locator.Selector != nil {
		for key, value := range locator.Selector.MatchLabels {
			templates = append(templates, key, value)
		}
	}
	for _, text := range templates {
		if !strings.Contains(text, "{{") {
			continue
		}
		for _, match := range fieldInTemplate.FindAllStringSubmatch(text, -1) {
			fields = append(fields, strings.TrimPrefix(match[1], "."))
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// isOfConsumers reports whether consumers decide about a field of the copy: it is neither of its identity nor of its status, and no
// mutation sets it.
func isOfConsumers(path string, mutation *syncagentv1alpha1.ResourceMutationSpec) bool {
	segments := strings.Split(path, ".")
	switch {
	case segments[0] == "status":
		return false
	case segments[0] == "metadata" && len(segments) > 1 && segments[1] != "labels" && segments[1] != "annotations":
		return false
	}
	return mutation == nil || !slices.ContainsFunc(mutation.Spec, func(step syncagentv1alpha1.ResourceMutation) bool {
		set := pathOf(step)
		return set != "" && (path == set || strings.HasPrefix(path, set+"."))
	})
}

func pathOf(step syncagentv1alpha1.ResourceMutation) string {
	switch {
	case step.Regex != nil:
		return step.Regex.Path
	case step.Template != nil:
		return step.Template.Path
	case step.CEL != nil:
		return step.CEL.Path
	case step.Delete != nil:
		return step.Delete.Path
	}
	return ""
}
