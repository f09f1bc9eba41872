// Package projection converts a definition of the service cluster to the definition that workspaces have: with other versions, names,
// scope or group, but with the same schema. It does no I/O.
package projection

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/crdpaths"
	"github.com/atoll-dev/atoll/syncagent/source"
)

// coreGroup replaces the empty group in names of definitions and schemas.
const coreGroup = "core"

// versionName is the pattern of version names in an APIResourceSchema. Definitions allow more.
var versionName = regexp.MustCompile(`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`)

var (
	resourcePath   = field.NewPath("spec", "resource")
	projectionPath = field.NewPath("spec", "projection")
)

// Project returns the definition for workspaces. It does not modify the given one. Errors name the field of the PublishedResource that
// the user must change. Project removes printer columns and selectable fields whose paths shards refuse.
func Project(definition *apiextensionsv1.CustomResourceDefinition, spec *syncagentv1alpha1.PublishedResourceSpec) (*apiextensionsv1.CustomResourceDefinition, error) {
	result := definition.DeepCopy()
	result.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	result.Spec.Conversion = nil
	projection := spec.Projection
	if projection == nil {
		projection = &syncagentv1alpha1.ResourceProjection{}
	}
	if err := selectVersions(&result.Spec, spec.Resource); err != nil {
		return nil, err
	}
	if err := renameVersions(&result.Spec, projection); err != nil {
		return nil, err
	}
	crdpaths.Default.Accepted(result.Spec.Versions)
	projectNames(&result.Spec, projection)
	if err := projectGroup(result, projection.Group); err != nil {
		return nil, err
	}
	result.Name = result.Spec.Names.Plural + "." + cmp.Or(result.Spec.Group, coreGroup)
	return result, nil
}

// selectVersions removes versions that are not selected. Without a selection, it does not remove versions that are not served, because
// objects may be stored in them.
func selectVersions(spec *apiextensionsv1.CustomResourceDefinitionSpec, selected syncagentv1alpha1.SourceResource) error {
	if selected.Version != "" && len(selected.Versions) > 0 {
		return field.Forbidden(resourcePath.Child("version"), "set either version or versions")
	}
	all := spec.Versions
	spec.Versions = slices.DeleteFunc(slices.Clone(all), func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return !selects(selected, v)
	})
	if !slices.ContainsFunc(spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served }) {
		return field.Invalid(resourcePath.Child("versions"), strings.Join(selection(selected), ", "),
			fmt.Sprintf("none of them is served; the service cluster serves %s", cmp.Or(strings.Join(served(all), ", "), "no version")))
	}
	ensureStorageVersion(spec.Versions)
	return nil
}

// selection returns the names of the selected versions; an empty selection selects all.
func selection(selected syncagentv1alpha1.SourceResource) []string {
	if selected.Version != "" {
		return []string{selected.Version}
	}
	return selected.Versions
}

func selects(selected syncagentv1alpha1.SourceResource, v apiextensionsv1.CustomResourceDefinitionVersion) bool {
	names := selection(selected)
	return len(names) == 0 || v.Served && slices.Contains(names, v.Name)
}

// ensureStorageVersion makes the highest served version the storage version, if selectVersions has removed the previous one.
func ensureStorageVersion(versions []apiextensionsv1.CustomResourceDefinitionVersion) {
	if slices.ContainsFunc(versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage }) {
		return
	}
	highest := served(versions)[0]
	for i := range versions {
		versions[i].Storage = versions[i].Name == highest
	}
}

// served returns the names of the served versions, the highest first.
func served(versions []apiextensionsv1.CustomResourceDefinitionVersion) []string {
	var names []string
	for _, v := range versions {
		if v.Served {
			names = append(names, v.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return -version.CompareKubeAwareVersionStrings(a, b) })
	return names
}

// renameVersions renames versions to their names in workspaces, and sorts them by priority: the highest first.
func renameVersions(spec *apiextensionsv1.CustomResourceDefinitionSpec, projection *syncagentv1alpha1.ResourceProjection) error {
	if projection.Version != "" && len(projection.Versions) > 0 {
		return field.Forbidden(projectionPath.Child("version"), "set either version or versions")
	}
	if projection.Version != "" && len(spec.Versions) > 1 {
		return field.Invalid(projectionPath.Child("version"), projection.Version,
			fmt.Sprintf("%d versions are published; select one in spec.resource.versions, or set spec.projection.versions", len(spec.Versions)))
	}
	renamed := map[string]string{}
	for i := range spec.Versions {
		old := spec.Versions[i].Name
		name := projectedVersion(projection, old)
		if !versionName.MatchString(name) {
			return field.Invalid(projectionPath.Child("versions").Key(old), name, "kcp requires versions such as v1 or v1beta1")
		}
		if other, ok := renamed[name]; ok {
			return field.Invalid(projectionPath.Child("versions").Key(old), name, fmt.Sprintf("version %s has this name, too", other))
		}
		renamed[name] = old
		spec.Versions[i].Name = name
	}
	slices.SortFunc(spec.Versions, func(a, b apiextensionsv1.CustomResourceDefinitionVersion) int {
		return -version.CompareKubeAwareVersionStrings(a.Name, b.Name)
	})
	return nil
}

// projectedVersion returns the name of a version in workspaces.
func projectedVersion(projection *syncagentv1alpha1.ResourceProjection, name string) string {
	if projection == nil {
		return name
	}
	return cmp.Or(projection.Version, projection.Versions[name], name)
}

// projectNames changes the scope and the names. Empty lists also replace short names and categories.
func projectNames(spec *apiextensionsv1.CustomResourceDefinitionSpec, projection *syncagentv1alpha1.ResourceProjection) {
	if projection.Scope != "" {
		spec.Scope = apiextensionsv1.ResourceScope(projection.Scope)
	}
	names := &spec.Names
	if projection.Kind != "" {
		names.Kind, names.ListKind = projection.Kind, projection.Kind+"List"
		names.Singular = strings.ToLower(projection.Kind)
		names.Plural = names.Singular + "s"
	}
	if projection.Plural != "" {
		names.Plural = projection.Plural
	}
	if projection.ShortNames != nil {
		names.ShortNames = *projection.ShortNames
	}
	if projection.Categories != nil {
		names.Categories = *projection.Categories
	}
}

// projectGroup changes the group. A protected group of Kubernetes is allowed only if the resource already has it, and needs the approval
// annotation.
func projectGroup(definition *apiextensionsv1.CustomResourceDefinition, group string) error {
	if group != "" && group != definition.Spec.Group {
		if source.IsProtected(group) {
			return field.Invalid(projectionPath.Child("group"), group, "the group belongs to Kubernetes; choose one of your own")
		}
		definition.Spec.Group = group
	}
	if !source.IsProtected(definition.Spec.Group) {
		delete(definition.Annotations, apiextensionsv1.KubeAPIApprovedAnnotation)
	}
	return nil
}
