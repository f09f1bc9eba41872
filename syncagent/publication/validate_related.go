package publication

import (
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

const (
	// maxIdentifierLength leaves room for "." and an index in the name of an annotation.
	maxIdentifierLength = 60
	oneLocator          = "set exactly one of reference, selector and template"
)

var identifierPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$`)

func validateRelated(spec *syncagentv1alpha1.PublishedResourceSpec, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	clusterScoped := spec.Projection != nil && spec.Projection.Scope == syncagentv1alpha1.ClusterScoped
	for i := range spec.Related {
		related, entry := &spec.Related[i], fldPath.Index(i)
		identifier := entry.Child("identifier")
		errs = append(errs, required(related.Identifier, isIdentifier, identifier)...)
		if related.Identifier != "" && seen.Has(related.Identifier) {
			errs = append(errs, field.Duplicate(identifier, related.Identifier))
		}
		seen.Insert(related.Identifier)
		errs = append(errs, validateRelatedResource(related, entry)...)
		errs = append(errs, validateRelatedSync(related, entry)...)
		object := entry.Child("object")
		errs = append(errs, validateLocator(&related.Object.RelatedResourceObjectSpec, object)...)
		switch {
		case related.Object.Namespace != nil:
			errs = append(errs, validateLocator(related.Object.Namespace, object.Child("namespace"))...)
		case clusterScoped:
			errs = append(errs, field.Required(object.Child("namespace"), "cluster-scoped objects have no namespace that related objects could be in"))
		}
		errs = append(errs, validateMutation(related.Mutation, entry.Child("mutation"))...)
	}
	return errs
}

func isIdentifier(identifier string) []string {
	switch {
	case len(identifier) > maxIdentifierLength:
		return []string{validation.MaxLenError(maxIdentifierLength)}
	case !identifierPattern.MatchString(identifier):
		return []string{"consists of letters and digits, with - and _ between them"}
	}
	return nil
}

// validateRelatedResource validates the resource of the entry.
func validateRelatedResource(related *syncagentv1alpha1.RelatedResourceSpec, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	kind, version := fldPath.Child("kind"), fldPath.Child("version")
	hasKind, hasVersion, hasResource := related.Kind != "", related.Version != "", related.Resource != ""
	switch {
	case hasKind && (hasVersion || hasResource):
		errs = append(errs, field.Forbidden(kind, "kind excludes version and resource"))
	case !hasKind && !hasVersion && !hasResource:
		errs = append(errs, field.Required(version, "set version and resource"))
	}
	if hasKind && related.Kind != "ConfigMap" && related.Kind != "Secret" {
		errs = append(errs, field.NotSupported(kind, related.Kind, []string{"ConfigMap", "Secret"}))
	}
	if hasResource && !hasVersion {
		errs = append(errs, field.Required(version, "resource needs version"))
	}
	if hasVersion && !hasResource {
		errs = append(errs, field.Required(fldPath.Child("resource"), "version needs resource"))
	}
	if related.Group != "" && (!hasVersion || !hasResource) {
		errs = append(errs, field.Forbidden(fldPath.Child("group"), "group needs version and resource"))
	}
	if related.IdentityHash != "" && (related.Group == "" || !hasVersion || !hasResource) {
		errs = append(errs, field.Forbidden(fldPath.Child("identityHash"), "identityHash needs group, version and resource"))
	}
	errs = append(errs, validateNames(related.Group, related.Version, related.Resource, fldPath)...)
	if projection := related.Projection; projection != nil {
		errs = append(errs, validateNames(projection.Group, projection.Version, projection.Resource, fldPath.Child("projection"))...)
	}
	return errs
}

func validateNames(group, version, resource string, fldPath *field.Path) field.ErrorList {
	errs := optional(group, validation.IsDNS1123Subdomain, fldPath.Child("group"))
	errs = append(errs, optional(version, validation.IsDNS1035Label, fldPath.Child("version"))...)
	return append(errs, optional(resource, validation.IsDNS1035Label, fldPath.Child("resource"))...)
}

// validateRelatedSync validates how the entry is synced.
func validateRelatedSync(related *syncagentv1alpha1.RelatedResourceSpec, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch related.Origin {
	case syncagentv1alpha1.RelatedResourceOriginService, syncagentv1alpha1.RelatedResourceOriginKcp:
	case "":
		errs = append(errs, field.Required(fldPath.Child("origin"), "set service or kcp"))
	default:
		errs = append(errs, field.NotSupported(fldPath.Child("origin"), related.Origin,
			[]syncagentv1alpha1.RelatedResourceOrigin{syncagentv1alpha1.RelatedResourceOriginService, syncagentv1alpha1.RelatedResourceOriginKcp}))
	}
	switch related.CleanupPolicy {
	case "", syncagentv1alpha1.CleanupOrphan, syncagentv1alpha1.CleanupOnPrimaryDeletion, syncagentv1alpha1.CleanupMatchOrigin:
	default:
		errs = append(errs, field.NotSupported(fldPath.Child("cleanupPolicy"), related.CleanupPolicy, []syncagentv1alpha1.RelatedResourceCleanupPolicy{
			syncagentv1alpha1.CleanupOrphan, syncagentv1alpha1.CleanupOnPrimaryDeletion, syncagentv1alpha1.CleanupMatchOrigin}))
	}
	watch := fldPath.Child("watch")
	if related.Watch == nil {
		if related.SyncStatus && related.Origin == syncagentv1alpha1.RelatedResourceOriginService {
			errs = append(errs, field.Required(watch, "syncStatus with origin service needs watch"))
		}
		return errs
	}
	if (related.Watch.ByOwner == nil) == (related.Watch.BySelector == nil) {
		errs = append(errs, field.Invalid(watch, "", "set exactly one of byOwner and bySelector"))
	}
	return append(errs, metav1validation.ValidateLabelSelector(related.Watch.BySelector,
		metav1validation.LabelSelectorValidationOptions{}, watch.Child("bySelector"))...)
}

func validateLocator(locator *syncagentv1alpha1.RelatedResourceObjectSpec, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	count := 0
	if reference := locator.Reference; reference != nil {
		count++
		at := fldPath.Child("reference")
		errs = append(errs, required(reference.Path, isReadPath, at.Child("path"))...)
		errs = append(errs, validateRegex(reference.Regex, at.Child("regex"))...)
	}
	if locator.Selector != nil {
		count++
		errs = append(errs, validateSelector(locator.Selector, fldPath.Child("selector"))...)
	}
	if locator.Template != nil {
		count++
		errs = append(errs, required(locator.Template.Template, compilesAsTemplate, fldPath.Child("template", "template"))...)
	}
	switch {
	case count == 0:
		return field.ErrorList{field.Required(fldPath, oneLocator)}
	case count > 1:
		errs = append(errs, field.Invalid(fldPath, "", oneLocator))
	}
	return errs
}

// validateRegex refuses an expression without pattern and replacement, because all names would be empty.
func validateRegex(regex *syncagentv1alpha1.RegularExpression, fldPath *field.Path) field.ErrorList {
	if regex == nil {
		return nil
	}
	if regex.Pattern == "" && regex.Replacement == "" {
		return field.ErrorList{field.Required(fldPath.Child("replacement"), "without a pattern, the replacement is the name")}
	}
	return optional(regex.Pattern, compilesAsPattern, fldPath.Child("pattern"))
}

func validateSelector(selector *syncagentv1alpha1.RelatedResourceObjectSelector, fldPath *field.Path) field.ErrorList {
	literal := metav1.LabelSelector{MatchLabels: map[string]string{}, MatchExpressions: selector.MatchExpressions}
	var errs field.ErrorList
	for _, key := range sets.List(sets.KeySet(selector.MatchLabels)) {
		value := selector.MatchLabels[key]
		if !isTemplate(key) && !isTemplate(value) {
			literal.MatchLabels[key] = value
			continue
		}
		at := fldPath.Child("matchLabels").Key(key)
		for _, text := range []string{key, value} {
			if isTemplate(text) {
				errs = append(errs, optional(text, compilesAsTemplate, at)...)
			}
		}
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(&literal, metav1validation.LabelSelectorValidationOptions{}, fldPath)...)

	rewrite := fldPath.Child("rewrite")
	if (selector.Rewrite.Regex == nil) == (selector.Rewrite.Template == nil) {
		return append(errs, field.Invalid(rewrite, "", "set exactly one of regex and template"))
	}
	if selector.Rewrite.Template != nil {
		return append(errs, required(selector.Rewrite.Template.Template, compilesAsTemplate, rewrite.Child("template", "template"))...)
	}
	return append(errs, validateRegex(selector.Rewrite.Regex, rewrite.Child("regex"))...)
}
