package replicatelabel

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/apis/rbac"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Those who want an object to travel, as the annotation names them.
const (
	forAPIs    = "apis.kcp.io"
	forTenancy = "tenancy.kcp.io"
	forCore    = "core.kcp.io"
)

// OfAdministrators is the annotation that bindings to cluster-admin get. Who creates one may set it at once, which saves
// a second write.
const OfAdministrators = forAPIs + "," + forTenancy

// policySubjectPrefix starts the users and groups that maximal permission policies speak of.
const policySubjectPrefix = "apis.kcp.io:binding:"

// scope is what is known of one logical cluster.
type scope struct {
	cluster  *corev1alpha1.LogicalCluster
	roles    []*rbac.ClusterRole
	bindings []*rbac.ClusterRoleBinding
	// shared are roles of system:admin, to which bindings of all logical clusters may refer.
	shared []*rbac.ClusterRole
	// exports, types and offers tell whether there is any APIExport, any WorkspaceType, any ClusterCachedResource.
	exports, types, offers bool
}

// mark is the annotation that an object shall have; empty for none.
type mark struct {
	resource, name string
	value          string
}

// plan returns the marks that are not as they shall be.
func (s *scope) plan() []mark {
	var marks []mark
	add := func(resource, name string, annotations map[string]string, wanted sets.Set[string]) {
		current := annotations[corev1alpha1.ReplicateAnnotationKey]
		if value := marked(current, wanted); value != current {
			marks = append(marks, mark{resource, name, value})
		}
	}
	wanted := s.ofCluster()
	add("logicalclusters", s.cluster.Name, s.cluster.Annotations, wanted)
	travels := marked(s.cluster.Annotations[corev1alpha1.ReplicateAnnotationKey], wanted) != ""
	bounding := s.bounding()
	for _, role := range s.roles {
		wanted := granted(role.Rules, travels)
		if bounding.Has(role.Name) {
			wanted.Insert(forAPIs)
		}
		add("clusterroles", role.Name, role.Annotations, wanted)
	}
	for _, binding := range s.bindings {
		wanted := sets.New[string]()
		if role := s.role(binding.RoleRef); role != nil {
			wanted = granted(role.Rules, travels)
		}
		if bounds(binding) {
			wanted.Insert(forAPIs)
		}
		add("clusterrolebindings", binding.Name, binding.Annotations, wanted)
	}
	return marks
}

// ofCluster returns who wants the LogicalCluster.
func (s *scope) ofCluster() sets.Set[string] {
	wanted := sets.New[string]()
	if s.exports || s.offers {
		wanted.Insert(forAPIs)
	}
	if s.types {
		wanted.Insert(forTenancy)
	}
	return wanted
}

// role returns what a binding refers to, the logical cluster's own first.
func (s *scope) role(ref rbac.RoleRef) *rbac.ClusterRole {
	if role := named(s.roles, ref.Name); role != nil {
		return role
	}
	return named(s.shared, ref.Name)
}

func named(roles []*rbac.ClusterRole, name string) *rbac.ClusterRole {
	if at := slices.IndexFunc(roles, func(role *rbac.ClusterRole) bool { return role.Name == name }); at >= 0 {
		return roles[at]
	}
	return nil
}

// bounding returns the names of the roles that are parts of maximal permission policies.
func (s *scope) bounding() sets.Set[string] {
	names := sets.New[string]()
	for _, binding := range s.bindings {
		if bounds(binding) {
			names.Insert(binding.RoleRef.Name)
		}
	}
	return names
}

func bounds(binding *rbac.ClusterRoleBinding) bool {
	return slices.ContainsFunc(binding.Subjects, func(subject rbac.Subject) bool {
		return (subject.Kind == rbac.UserKind || subject.Kind == rbac.GroupKind) && strings.HasPrefix(subject.Name, policySubjectPrefix)
	})
}

// granted returns who wants rules to travel. That somebody may enter a logical cluster matters elsewhere only if the
// logical cluster itself is known there.
func granted(rules []rbac.PolicyRule, travels bool) sets.Set[string] {
	wanted := sets.New[string]()
	for _, rule := range rules {
		switch resources := rule.Resources; {
		case slices.Contains(resources, rbac.ResourceAll) && has(rule.APIGroups, forAPIs),
			slices.Contains(resources, "apiexports/content") && has(rule.APIGroups, forAPIs),
			slices.Contains(resources, "apiexports") && has(rule.APIGroups, forAPIs) && has(rule.Verbs, "bind"),
			slices.Contains(resources, "clustercachedresources") && has(rule.APIGroups, "cache.kcp.io") && has(rule.Verbs, "bind"):
			wanted.Insert(forAPIs)
		}
		if has(rule.APIGroups, forTenancy) && has(rule.Resources, "workspacetypes") && has(rule.Verbs, "use", "initialize", "terminate") {
			wanted.Insert(forTenancy)
		}
		if travels && has(rule.NonResourceURLs, "/") && has(rule.Verbs, "access") {
			wanted.Insert(forCore)
		}
	}
	return wanted
}

// has tells whether a rule names any of some values, or all that there are.
func has(named []string, any ...string) bool {
	return slices.ContainsFunc(named, func(one string) bool { return one == rbac.ResourceAll || slices.Contains(any, one) })
}

// marked returns the annotation with the names of ours that are wanted, and those of others as they are.
func marked(current string, wanted sets.Set[string]) string {
	names := wanted.Clone()
	for name := range strings.SplitSeq(current, ",") {
		if name != "" && name != forAPIs && name != forTenancy && name != forCore {
			names.Insert(name)
		}
	}
	return strings.Join(sets.List(names), ",")
}
