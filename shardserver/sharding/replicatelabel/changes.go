package replicatelabel

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/apis/rbac"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Consumers of replicated objects, as listed in the annotation.
const (
	forAPIs    = "apis.kcp.io"
	forTenancy = "tenancy.kcp.io"
	forCore    = "core.kcp.io"
)

// AdminBindingValue is the annotation value of bindings to cluster-admin. Clients that create one may set it, to save a
// second write.
const AdminBindingValue = forAPIs + "," + forTenancy

// policySubjectPrefix is the prefix of users and groups in maximal permission policies.
const policySubjectPrefix = "apis.kcp.io:binding:"

// clusterState is the observed state of one logical cluster.
type clusterState struct {
	cluster  *corev1alpha1.LogicalCluster
	roles    []*rbac.ClusterRole
	bindings []*rbac.ClusterRoleBinding
	// adminRoles are roles of system:admin that bindings of the logical cluster reference.
	adminRoles []*rbac.ClusterRole
	// exports, types and cachedResources report whether any APIExport, WorkspaceType or ClusterCachedResource exists.
	exports, types, cachedResources bool
}

// labelChange is an annotation value to set; "" removes the annotation.
type labelChange struct {
	resource, name string
	value          string
}

// changes returns the annotations that differ from the desired ones.
func (s *clusterState) changes() []labelChange {
	var changes []labelChange
	add := func(resource, name string, annotations map[string]string, consumers sets.Set[string]) {
		current := annotations[corev1alpha1.ReplicateAnnotationKey]
		if value := mergeValue(current, consumers); value != current {
			changes = append(changes, labelChange{resource, name, value})
		}
	}
	consumers := s.consumersOfCluster()
	add("logicalclusters", s.cluster.Name, s.cluster.Annotations, consumers)
	clusterReplicated := mergeValue(s.cluster.Annotations[corev1alpha1.ReplicateAnnotationKey], consumers) != ""
	policyRoles := s.policyRoles()
	for _, role := range s.roles {
		consumers := consumersOfRules(role.Rules, clusterReplicated)
		if policyRoles.Has(role.Name) {
			consumers.Insert(forAPIs)
		}
		add("clusterroles", role.Name, role.Annotations, consumers)
	}
	for _, binding := range s.bindings {
		consumers := sets.New[string]()
		if role := s.resolveRole(binding.RoleRef); role != nil {
			consumers = consumersOfRules(role.Rules, clusterReplicated)
		}
		if isPolicyBinding(binding) {
			consumers.Insert(forAPIs)
		}
		add("clusterrolebindings", binding.Name, binding.Annotations, consumers)
	}
	return changes
}

// consumersOfCluster returns the consumers of the LogicalCluster.
func (s *clusterState) consumersOfCluster() sets.Set[string] {
	consumers := sets.New[string]()
	if s.exports || s.cachedResources {
		consumers.Insert(forAPIs)
	}
	if s.types {
		consumers.Insert(forTenancy)
	}
	return consumers
}

// resolveRole returns the role that a binding references: the logical cluster's own, else that of system:admin.
func (s *clusterState) resolveRole(ref rbac.RoleRef) *rbac.ClusterRole {
	if role := findRole(s.roles, ref.Name); role != nil {
		return role
	}
	return findRole(s.adminRoles, ref.Name)
}

func findRole(roles []*rbac.ClusterRole, name string) *rbac.ClusterRole {
	if at := slices.IndexFunc(roles, func(role *rbac.ClusterRole) bool { return role.Name == name }); at >= 0 {
		return roles[at]
	}
	return nil
}

// policyRoles returns the names of the roles in maximal permission policies.
func (s *clusterState) policyRoles() sets.Set[string] {
	names := sets.New[string]()
	for _, binding := range s.bindings {
		if isPolicyBinding(binding) {
			names.Insert(binding.RoleRef.Name)
		}
	}
	return names
}

func isPolicyBinding(binding *rbac.ClusterRoleBinding) bool {
	return slices.ContainsFunc(binding.Subjects, func(subject rbac.Subject) bool {
		return (subject.Kind == rbac.UserKind || subject.Kind == rbac.GroupKind) && strings.HasPrefix(subject.Name, policySubjectPrefix)
	})
}

// consumersOfRules returns the consumers of roles with these rules. Other shards need access rules only for logical
// clusters that are replicated.
func consumersOfRules(rules []rbac.PolicyRule, clusterReplicated bool) sets.Set[string] {
	consumers := sets.New[string]()
	for _, rule := range rules {
		switch resources := rule.Resources; {
		case slices.Contains(resources, rbac.ResourceAll) && containsAny(rule.APIGroups, forAPIs),
			slices.Contains(resources, "apiexports/content") && containsAny(rule.APIGroups, forAPIs),
			slices.Contains(resources, "apiexports") && containsAny(rule.APIGroups, forAPIs) && containsAny(rule.Verbs, "bind"),
			slices.Contains(resources, "clustercachedresources") && containsAny(rule.APIGroups, "cache.kcp.io") && containsAny(rule.Verbs, "bind"):
			consumers.Insert(forAPIs)
		}
		if containsAny(rule.APIGroups, forTenancy) && containsAny(rule.Resources, "workspacetypes") && containsAny(rule.Verbs, "use", "initialize", "terminate") {
			consumers.Insert(forTenancy)
		}
		if clusterReplicated && containsAny(rule.NonResourceURLs, "/") && containsAny(rule.Verbs, "access") {
			consumers.Insert(forCore)
		}
	}
	return consumers
}

// containsAny reports whether list contains any of the values, or the wildcard.
func containsAny(list []string, values ...string) bool {
	return slices.ContainsFunc(list, func(value string) bool { return value == rbac.ResourceAll || slices.Contains(values, value) })
}

// mergeValue returns the annotation value with the consumers, and with those of other owners in the current value.
func mergeValue(current string, consumers sets.Set[string]) string {
	names := consumers.Clone()
	for name := range strings.SplitSeq(current, ",") {
		if name != "" && name != forAPIs && name != forTenancy && name != forCore {
			names.Insert(name)
		}
	}
	return strings.Join(sets.List(names), ",")
}
