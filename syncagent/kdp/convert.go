package kdp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	servicesv1alpha1 "github.com/atoll-dev/atoll/api/kdp/services/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// Default names of copies. They differ from those of the newer dialect.
const (
	defaultName      = "$remoteNamespaceHash-$remoteNameHash"
	defaultNamespace = "$remoteClusterName"
)

// FromPublishedResource converts a PublishedResource to a publication in an API group, the group of the Service that the agent belongs
// to. The publication references the object and has a copy of its spec.
func FromPublishedResource(object *servicesv1alpha1.PublishedResource, group string) *publication.Publication {
	p := &publication.Publication{Object: object, SchemaName: object.Status.ResourceSchemaName}
	spec, fldPath := object.Spec.DeepCopy(), field.NewPath("spec")
	allowed, errs := publication.ParseAllowed(object)
	p.Allowed = allowed
	if group == "" {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), servicesv1alpha1.SchemeGroupVersion.String(),
			"is published in the API group of a Service, which the agent does not know"))
		group = spec.Resource.APIGroup
	}
	p.Spec = syncagentv1alpha1.PublishedResourceSpec{
		Resource: syncagentv1alpha1.SourceResource{
			APIGroup: spec.Resource.APIGroup, Kind: spec.Resource.Kind, Versions: []string{spec.Resource.Version},
		},
		Naming:     convertNaming(spec.Naming),
		Projection: convertProjection(spec, group),
		Related:    convertRelated(spec.Related),
	}
	if filter := spec.Filter; filter != nil {
		selector, err := convertNamespaceFilter(filter.Namespace, fldPath.Child("filter", "namespace"))
		if err != nil {
			errs = append(errs, err)
		}
		p.Spec.Filter = &syncagentv1alpha1.ResourceFilter{Namespace: selector, Resource: filter.Resource}
	}
	p.Invalid = append(errs, originalPaths(publication.Validate(&p.Spec, fldPath))...)
	return p
}

func convertNaming(naming *syncagentv1alpha1.ResourceNaming) *syncagentv1alpha1.ResourceNaming {
	result := &syncagentv1alpha1.ResourceNaming{Name: defaultName, Namespace: defaultNamespace}
	if naming != nil && naming.Name != "" {
		result.Name = naming.Name
	}
	if naming != nil && naming.Namespace != "" {
		result.Namespace = naming.Namespace
	}
	return result
}

func convertProjection(spec *servicesv1alpha1.PublishedResourceSpec, group string) *syncagentv1alpha1.ResourceProjection {
	result := &syncagentv1alpha1.ResourceProjection{Group: group}
	projection := spec.Projection
	if projection == nil {
		return result
	}
	result.Scope, result.Kind = projection.Scope, projection.Kind
	result.Plural = strings.ToLower(projection.Plural) // the guide capitalizes the plural
	result.ShortNames, result.Categories = projection.ShortNames, projection.Categories
	if projection.Version != "" {
		result.Versions = map[string]string{spec.Resource.Version: projection.Version}
	}
	return result
}

// convertNamespaceFilter converts the name of a namespace to a selector of the label that every namespace has.
func convertNamespaceFilter(filter *apiextensionsv1.JSON, fldPath *field.Path) (*metav1.LabelSelector, *field.Error) {
	if filter == nil || len(filter.Raw) == 0 || string(filter.Raw) == "null" {
		return nil, nil
	}
	var name string
	if err := json.Unmarshal(filter.Raw, &name); err == nil {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}, nil
	}
	selector := &metav1.LabelSelector{}
	decoder := json.NewDecoder(bytes.NewReader(filter.Raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(selector); err != nil {
		return nil, field.Invalid(fldPath, string(filter.Raw), "is neither the name of a namespace nor a label selector")
	}
	return selector, nil
}

func convertRelated(entries []servicesv1alpha1.RelatedResource) []syncagentv1alpha1.RelatedResourceSpec {
	var result []syncagentv1alpha1.RelatedResourceSpec
	for i := range entries {
		entry := &entries[i]
		related := syncagentv1alpha1.RelatedResourceSpec{
			Identifier: entry.Identifier,
			Origin:     syncagentv1alpha1.RelatedResourceOrigin(entry.Origin),
			Kind:       entry.Kind,
		}
		if related.Identifier == "" {
			related.Identifier = fmt.Sprintf("%s-%d", strings.ToLower(entry.Kind), i)
		}
		if entry.Origin == servicesv1alpha1.RelatedResourceOriginPlatform {
			related.Origin = syncagentv1alpha1.RelatedResourceOriginKcp
		}
		related.Object.Reference = convertLocator(&entry.Reference.Name)
		if namespace := entry.Reference.Namespace; namespace != nil {
			related.Object.Namespace = &syncagentv1alpha1.RelatedResourceObjectSpec{Reference: convertLocator(namespace)}
		}
		result = append(result, related)
	}
	return result
}

func convertLocator(locator *servicesv1alpha1.ResourceLocator) *syncagentv1alpha1.RelatedResourceObjectReference {
	return &syncagentv1alpha1.RelatedResourceObjectReference{Path: locator.Path, Regex: locator.Regex}
}

var relatedPaths = strings.NewReplacer(
	".object.namespace.reference", ".reference.namespace",
	".object.namespace", ".reference.namespace",
	".object.reference", ".reference.name",
	"spec.resource.versions[0]", "spec.resource.version",
)

// originalPaths replaces the paths of errors in a converted spec by the paths of this dialect.
func originalPaths(errs field.ErrorList) field.ErrorList {
	for _, err := range errs {
		err.Field = relatedPaths.Replace(err.Field)
	}
	return errs
}
