package publication

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// Validate returns all errors in a spec that can be found without a cluster: it checks the rules of the definition, names, selectors,
// regular expressions, templates and CEL expressions.
func Validate(spec *syncagentv1alpha1.PublishedResourceSpec, fldPath *field.Path) field.ErrorList {
	errs := validateSource(&spec.Resource, fldPath.Child("resource"))
	errs = append(errs, validateFilter(spec.Filter, fldPath.Child("filter"))...)
	errs = append(errs, validateNaming(spec, fldPath.Child("naming"))...)
	errs = append(errs, validateProjection(spec, fldPath.Child("projection"))...)
	errs = append(errs, validateMutation(spec.Mutation, fldPath.Child("mutation"))...)
	return append(errs, validateRelated(spec, fldPath.Child("related"))...)
}

func validateSource(source *syncagentv1alpha1.SourceResource, fldPath *field.Path) field.ErrorList {
	errs := optional(source.APIGroup, validation.IsDNS1123Subdomain, fldPath.Child("apiGroup"))
	errs = append(errs, required(source.Kind, isKind, fldPath.Child("kind"))...)
	errs = append(errs, optional(source.Version, validation.IsDNS1035Label, fldPath.Child("version"))...)
	versions := fldPath.Child("versions")
	if source.Version != "" && len(source.Versions) > 0 {
		errs = append(errs, field.Forbidden(versions, "version and versions exclude each other"))
	}
	seen := sets.New[string]()
	for i, version := range source.Versions {
		errs = append(errs, required(version, validation.IsDNS1035Label, versions.Index(i))...)
		if seen.Has(version) {
			errs = append(errs, field.Duplicate(versions.Index(i), version))
		}
		seen.Insert(version)
	}
	return errs
}

func validateFilter(filter *syncagentv1alpha1.ResourceFilter, fldPath *field.Path) field.ErrorList {
	if filter == nil {
		return nil
	}
	options := metav1validation.LabelSelectorValidationOptions{}
	errs := metav1validation.ValidateLabelSelector(filter.Namespace, options, fldPath.Child("namespace"))
	return append(errs, metav1validation.ValidateLabelSelector(filter.Resource, options, fldPath.Child("resource"))...)
}

func validateProjection(spec *syncagentv1alpha1.PublishedResourceSpec, fldPath *field.Path) field.ErrorList {
	projection := spec.Projection
	if projection == nil {
		projection = &syncagentv1alpha1.ResourceProjection{}
	}
	var errs field.ErrorList
	group := fldPath.Child("group")
	switch {
	case projection.Group == "" && spec.Resource.APIGroup == "":
		errs = append(errs, field.Required(group, "resources of the core group are published in another group"))
	case apihelpers.IsProtectedCommunityGroup(projection.Group):
		errs = append(errs, field.Invalid(group, projection.Group, "is reserved for Kubernetes; choose a group of your own"))
	default:
		errs = append(errs, optional(projection.Group, validation.IsDNS1123Subdomain, group)...)
	}
	errs = append(errs, validateVersionNames(&spec.Resource, projection, fldPath)...)
	if !slices.Contains([]syncagentv1alpha1.ResourceScope{"", syncagentv1alpha1.ClusterScoped, syncagentv1alpha1.NamespaceScoped}, projection.Scope) {
		errs = append(errs, field.NotSupported(fldPath.Child("scope"), projection.Scope,
			[]syncagentv1alpha1.ResourceScope{syncagentv1alpha1.ClusterScoped, syncagentv1alpha1.NamespaceScoped}))
	}
	errs = append(errs, optional(projection.Kind, isKind, fldPath.Child("kind"))...)
	errs = append(errs, optional(projection.Plural, validation.IsDNS1035Label, fldPath.Child("plural"))...)
	errs = append(errs, validateLabels(projection.ShortNames, fldPath.Child("shortNames"))...)
	return append(errs, validateLabels(projection.Categories, fldPath.Child("categories"))...)
}

// validateVersionNames validates the names of versions in workspaces. The existing versions are known only if the spec lists them.
func validateVersionNames(source *syncagentv1alpha1.SourceResource, projection *syncagentv1alpha1.ResourceProjection, fldPath *field.Path) field.ErrorList {
	version, versions := fldPath.Child("version"), fldPath.Child("versions")
	errs := optional(projection.Version, isSchemaVersion, version)
	if projection.Version != "" {
		if len(projection.Versions) > 0 {
			errs = append(errs, field.Forbidden(versions, "version and versions exclude each other"))
		}
		if len(source.Versions) > 1 {
			errs = append(errs, field.Forbidden(version, "several versions are published; use versions"))
		}
	}
	published := map[string]string{} // from the name in workspaces to the name on the service cluster
	for _, name := range slices.Sorted(slices.Values(source.Versions)) {
		if _, renamed := projection.Versions[name]; !renamed {
			published[name] = name
		}
	}
	for _, old := range slices.Sorted(maps.Keys(projection.Versions)) {
		renamed := projection.Versions[old]
		errs = append(errs, required(renamed, isSchemaVersion, versions.Key(old))...)
		if len(source.Versions) > 0 && !slices.Contains(source.Versions, old) {
			continue // not published
		}
		if other, taken := published[renamed]; taken {
			errs = append(errs, field.Invalid(versions.Key(old), renamed, "is also the name of version "+other))
		}
		published[renamed] = old
	}
	return errs
}

func validateLabels(names *[]string, fldPath *field.Path) field.ErrorList {
	if names == nil {
		return nil
	}
	var errs field.ErrorList
	for i, name := range *names {
		errs = append(errs, required(name, validation.IsDNS1035Label, fldPath.Index(i))...)
	}
	return errs
}

// schemaVersion is the pattern that an APIResourceSchema accepts. Definitions allow more, so versions of the source may need other names.
var schemaVersion = regexp.MustCompile(`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`)

func isSchemaVersion(version string) []string {
	if !schemaVersion.MatchString(version) {
		return []string{"is not of the form v1, v1beta1"}
	}
	return nil
}

// isKind is the rule of definitions: kinds are labels, in upper or lower case.
func isKind(kind string) []string { return validation.IsDNS1035Label(strings.ToLower(kind)) }
