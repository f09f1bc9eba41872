package discovery

import (
	"cmp"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	stock "k8s.io/apiserver/pkg/endpoints/discovery"
)

// mergeGroups returns the groups of an API set: the built-in ones in their order, then groups of definitions, ordered by name, with
// versions in Kubernetes' order.
func (s *APISet) mergeGroups() []group {
	merged := make([]group, 0, len(s.Compiled.groups))
	for _, compiled := range s.Compiled.groups {
		merged = append(merged, group{name: compiled.name, versions: s.visibleVersions(compiled)})
	}
	for _, definition := range s.Definitions {
		merged = addDefinition(merged, definition)
	}
	merged = slices.DeleteFunc(merged, func(g group) bool { return len(g.versions) == 0 })
	own := slices.IndexFunc(merged, func(g group) bool { return !s.Compiled.hasGroup(g.name) })
	if own >= 0 {
		slices.SortFunc(merged[own:], func(a, b group) int { return cmp.Compare(a.name, b.name) })
	}
	for i := range merged {
		s.sortVersions(&merged[i])
	}
	return merged
}

func (c *Compiled) hasGroup(name string) bool {
	return slices.ContainsFunc(c.groups, func(g group) bool { return g.name == name })
}

// visibleVersions returns the versions of a group without hidden resources. Their slices may be appended to.
func (s *APISet) visibleVersions(compiled group) []groupVersion {
	var versions []groupVersion
	for _, from := range compiled.versions {
		visible := groupVersion{name: from.name}
		for _, resource := range from.aggregated {
			if !s.IsHidden(schema.GroupResource{Group: compiled.name, Resource: resource.Resource}) {
				visible.aggregated = append(visible.aggregated, resource)
			}
		}
		for _, resource := range from.unaggregated {
			name, _, _ := strings.Cut(resource.Name, "/")
			if !s.IsHidden(schema.GroupResource{Group: compiled.name, Resource: name}) {
				visible.unaggregated = append(visible.unaggregated, resource)
			}
		}
		if len(visible.aggregated) > 0 || len(from.aggregated) == 0 {
			versions = append(versions, visible)
		}
	}
	return versions
}

// sortVersions sorts versions of definitions after the built-in ones, the preferred one first.
func (s *APISet) sortVersions(sorted *group) {
	compiled := 0
	for _, known := range s.Compiled.groups {
		for _, v := range known.versions {
			if known.name == sorted.name && compiled < len(sorted.versions) && sorted.versions[compiled].name == v.name {
				compiled++
			}
		}
	}
	slices.SortStableFunc(sorted.versions[compiled:], func(a, b groupVersion) int {
		return version.CompareKubeAwareVersionStrings(b.name, a.name)
	})
}

func addDefinition(groups []group, definition Definition) []group {
	name := definition.Object.Spec.Group
	position := slices.IndexFunc(groups, func(g group) bool { return g.name == name })
	if position < 0 {
		position = len(groups)
		groups = append(groups, group{name: name})
	}
	target := &groups[position]
	for _, served := range definition.Object.Spec.Versions {
		if !served.Served {
			continue
		}
		at := slices.IndexFunc(target.versions, func(v groupVersion) bool { return v.name == served.Name })
		if at < 0 {
			at = len(target.versions)
			target.versions = append(target.versions, groupVersion{name: served.Name})
		}
		definition.addTo(&target.versions[at])
	}
	return groups
}

// addTo adds the definition's resource to one of the versions that it serves.
func (d Definition) addTo(to *groupVersion) {
	gv := schema.GroupVersion{Group: d.Object.Spec.Group, Version: to.name}
	names := d.Object.Status.AcceptedNames.DeepCopy() // cached documents must not retain the object
	scope := apidiscoveryv2.ScopeCluster
	if d.Object.Spec.Scope == apiextensions.NamespaceScoped {
		scope = apidiscoveryv2.ScopeNamespace
	}
	resource := apidiscoveryv2.APIResourceDiscovery{
		Resource: names.Plural, SingularResource: names.Singular, Scope: scope, Verbs: d.verbs(),
		ShortNames: names.ShortNames, Categories: names.Categories,
		ResponseKind: &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: names.Kind},
	}
	to.unaggregated = append(to.unaggregated, metav1.APIResource{
		Name: names.Plural, SingularName: names.Singular, Namespaced: scope == apidiscoveryv2.ScopeNamespace, Kind: names.Kind, Verbs: d.verbs(),
		ShortNames: names.ShortNames, Categories: names.Categories, StorageVersionHash: d.storageVersionHash(),
	})
	for _, sub := range append(d.subresources(gv), d.customSubresources(gv)...) {
		resource.Subresources = append(resource.Subresources, sub)
		to.unaggregated = append(to.unaggregated, listedSubresource(gv, names.Plural, scope, sub))
	}
	to.aggregated = append(to.aggregated, resource)
}

func (d Definition) verbs() metav1.Verbs {
	if len(d.Verbs) > 0 {
		return d.Verbs
	}
	if d.ReadOnly {
		return metav1.Verbs{"get", "list", "watch"}
	}
	if d.Terminating {
		return metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	}
	return metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
}

func (d Definition) storageVersionHash() string {
	stored, err := apiextensions.GetCRDStorageVersion(d.Object)
	if err != nil {
		return "" // impossible after validation
	}
	return stock.StorageVersionHash(d.Object.Spec.Group, stored, d.Object.Status.AcceptedNames.Kind)
}

func (d Definition) subresources(gv schema.GroupVersion) []apidiscoveryv2.APISubresourceDiscovery {
	has, err := apiextensions.GetSubresourcesForVersion(d.Object, gv.Version)
	if err != nil || has == nil {
		return nil
	}
	var all []apidiscoveryv2.APISubresourceDiscovery
	add := func(name string, kind metav1.GroupVersionKind) {
		all = append(all, apidiscoveryv2.APISubresourceDiscovery{Subresource: name, ResponseKind: &kind, Verbs: metav1.Verbs{"get", "patch", "update"}})
	}
	if has.Status != nil {
		add("status", metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: d.Object.Status.AcceptedNames.Kind})
	}
	if has.Scale != nil {
		add("scale", metav1.GroupVersionKind{Group: autoscalingv1.GroupName, Version: "v1", Kind: "Scale"})
	}
	return all
}

// listedSubresource returns the unaggregated form, which has the group and version of a kind if they differ from those of
// the list.
func listedSubresource(gv schema.GroupVersion, plural string, scope apidiscoveryv2.ResourceScope, sub apidiscoveryv2.APISubresourceDiscovery) metav1.APIResource {
	listed := metav1.APIResource{
		Name: plural + "/" + sub.Subresource, Namespaced: scope == apidiscoveryv2.ScopeNamespace, Kind: sub.ResponseKind.Kind, Verbs: sub.Verbs,
	}
	if sub.ResponseKind.Group != gv.Group || sub.ResponseKind.Version != gv.Version {
		listed.Group, listed.Version = sub.ResponseKind.Group, sub.ResponseKind.Version
	}
	return listed
}
