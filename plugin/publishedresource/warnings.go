package publishedresource

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
)

// warnings returns what is valid and may be more, or less, than the owner wants.
func warnings(p *publication.Publication) []string {
	return slices.Concat(namingWarnings(&p.Spec), writeWarnings(p), readWarnings(&p.Spec))
}

// ofConsumers matches what a name is made of that consumers write.
var ofConsumers = regexp.MustCompile(`\.Object|\.ClusterPath|\$remoteName`)

// namingWarnings are about copies in namespaces that consumers name.
func namingWarnings(spec *syncagentv1alpha1.PublishedResourceSpec) []string {
	if spec.Naming == nil || spec.Naming.Namespace == "" {
		return nil
	}
	pattern := spec.Naming.Namespace
	if !ofConsumers.MatchString(pattern) || strings.Contains(pattern, "ClusterName") {
		return nil
	}
	return []string{"spec.naming.namespace: consumers choose the namespace of copies, also one with copies of others. Use the name of the logical cluster, too"}
}

// writeWarnings are about related objects of workspaces that are not written where the locator leads.
func writeWarnings(p *publication.Publication) []string {
	var all []string
	for i := range p.Spec.Related {
		namespace := p.Spec.Related[i].Object.Namespace
		if p.Spec.Related[i].Origin != syncagentv1alpha1.RelatedResourceOriginKcp || namespace == nil || len(p.Allowed.Namespaces) > 0 {
			continue
		}
		if _, constant := related.Constant(namespace, "a"); !constant {
			all = append(all, fmt.Sprintf("%s: it depends on the object of a consumer, so related objects are written only where it is the namespace of the copy. "+
				"Use a constant, or allow namespaces with the annotation %s", field.NewPath("spec", "related").Index(i).Child("object", "namespace"), publication.AnnotationAllowedNamespaces))
		}
	}
	return all
}

// readWarnings are about related objects of the service cluster that consumers name.
func readWarnings(spec *syncagentv1alpha1.PublishedResourceSpec) []string {
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
