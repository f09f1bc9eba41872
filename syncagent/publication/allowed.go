package publication

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotations of PublishedResources, with names that are separated by commas. They are annotations because the definition of
// PublishedResources is part of the contract, and objects of both dialects can have them.
const (
	// AnnotationAllowedNamespaces lists namespaces of the service cluster.
	AnnotationAllowedNamespaces = Prefix + "allowed-namespaces"
	// AnnotationAllowedClusterScopedNames lists names of cluster-scoped objects of the service cluster.
	AnnotationAllowedClusterScopedNames = Prefix + "allowed-cluster-scoped-names"
)

// Allowed are the locations on the service cluster to which objects of consumers may lead, in addition to those that the owner has chosen
// independent of consumers' data.
type Allowed struct {
	Namespaces, ClusterScopedNames AllowedNames
}

// AllowedNames are names, with the placeholder for the logical cluster. A name that ends in an asterisk is a prefix.
type AllowedNames []string

const (
	clusterPlaceholder = "$remoteClusterName"
	anySuffix          = "*"
)

// Match reports whether objects of a logical cluster may use a name.
func (n AllowedNames) Match(cluster, name string) bool {
	return slices.ContainsFunc(n, func(entry string) bool {
		prefix, isPrefix := strings.CutSuffix(strings.ReplaceAll(entry, clusterPlaceholder, cluster), anySuffix)
		return name == prefix || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// Contains reports whether the list contains a name literally, without placeholder and asterisk.
func (n AllowedNames) Contains(name string) bool { return slices.Contains(n, name) }

// ParseAllowed parses the annotations of a PublishedResource.
func ParseAllowed(object metav1.Object) (Allowed, field.ErrorList) {
	annotations, path := object.GetAnnotations(), field.NewPath("metadata", "annotations")
	var allowed Allowed
	var errs field.ErrorList
	for _, list := range []struct {
		annotation string
		isName     apivalidation.ValidateNameFunc
		names      *AllowedNames
	}{
		{AnnotationAllowedNamespaces, apivalidation.NameIsDNSLabel, &allowed.Namespaces},
		{AnnotationAllowedClusterScopedNames, isPathSegment, &allowed.ClusterScopedNames},
	} {
		if text, found := annotations[list.annotation]; found {
			names, problems := parseNames(text, list.isName, path.Key(list.annotation))
			*list.names = names
			errs = append(errs, problems...)
		}
	}
	return allowed, errs
}

func parseNames(text string, isName apivalidation.ValidateNameFunc, path *field.Path) (names AllowedNames, errs field.ErrorList) {
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		prefix, isPrefix := strings.CutSuffix(strings.ReplaceAll(entry, clusterPlaceholder, "a"), anySuffix)
		switch {
		case prefix == "" && isPrefix:
			errs = append(errs, field.Invalid(path, entry, "allows everything; write a prefix before the asterisk"))
		case prefix == "":
			errs = append(errs, field.Invalid(path, text, "has an empty name; separate names by one comma"))
		case strings.HasSuffix(entry, clusterPlaceholder+anySuffix):
			errs = append(errs, field.Invalid(path, entry, "may be the name of another logical cluster; write a dash before the asterisk"))
		case slices.Contains(names, entry):
			errs = append(errs, field.Duplicate(path, entry))
		default:
			for _, problem := range isName(prefix, isPrefix) {
				errs = append(errs, field.Invalid(path, entry, problem))
			}
		}
		names = append(names, entry)
	}
	return names, errs
}

// isPathSegment is the weakest rule for names, because names of roles do not have to be DNS names. An asterisk is allowed only at the
// end.
func isPathSegment(name string, isPrefix bool) []string {
	problems := content.IsPathSegmentName(name)
	if isPrefix {
		problems = content.IsPathSegmentPrefix(name)
	}
	if strings.ContainsAny(name, "$*") {
		problems = append(problems, "has neither $ nor *, except the placeholder "+clusterPlaceholder+" and an asterisk at the end")
	}
	return problems
}
