package bootstrap

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// systemPolicy returns the RBAC of system:admin, which applies in every logical cluster of the shard: upstream's roles
// for users and roles for the components of an installation.
//
// Upstream's roles for the controllers of kube-controller-manager are excluded: their subjects are service accounts in
// kube-system, which every tenant can create.
func systemPolicy() []client.Object {
	roles := append(bootstrappolicy.ClusterRoles(), systemRoles()...)
	fillAggregated(roles)
	bindings := append(bootstrappolicy.ClusterRoleBindings(), systemBindings()...)
	objects := make([]client.Object, 0, len(roles)+len(bindings))
	for i := range roles {
		objects = append(objects, &roles[i])
	}
	for i := range bindings {
		objects = append(objects, &bindings[i])
	}
	return objects
}

// fillAggregated adds the rules of the selected roles to aggregated roles, until nothing changes, so that they are
// complete before their controller runs.
func fillAggregated(roles []rbacv1.ClusterRole) {
	for changed := true; changed; {
		changed = false
		for i := range roles {
			if roles[i].AggregationRule == nil {
				continue
			}
			rules := aggregate(&roles[i], roles)
			if !equality.Semantic.DeepEqual(rules, roles[i].Rules) {
				roles[i].Rules, changed = rules, true
			}
		}
	}
}

func aggregate(role *rbacv1.ClusterRole, roles []rbacv1.ClusterRole) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			continue // an empty selector selects nothing
		}
		for _, source := range roles {
			if source.Name == role.Name || !selector.Matches(labels.Set(source.Labels)) {
				continue
			}
			for _, rule := range source.Rules {
				if !slices.ContainsFunc(rules, func(known rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(known, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules
}

// Names of roles that exist in system:admin and, some of them, in root.
const (
	roleWorkspaceAccess = "system:kcp:workspace:access"
	roleTenancyReader   = "system:kcp:tenancy:reader"
	roleMetricsReader   = "system:kcp:metrics-reader"
)

func systemRoles() []rbacv1.ClusterRole {
	return []rbacv1.ClusterRole{
		clusterRole(authorization.GroupBootstrapper,
			rule("*").groups("*").resources("*"),
			rule("*").urls("*")),
		clusterRole(authorization.GroupLogicalClusterAdmin,
			rule("*").groups("core.kcp.io").resources("logicalclusters", "logicalclusters/status"),
			rule("get", "update", "delete").groups("tenancy.kcp.io").resources("workspaces")),
		clusterRole(authorization.GroupExternalLogicalClusterAdmin, externalAdminRules()...),
		accessRole(),
		tenancyReaderRole(),
		clusterRole(roleMetricsReader, rule("get").urls("/metrics")),
	}
}

// externalAdminRules returns the permissions that the contract gives to shards on other shards, through the front proxy.
// Atoll's shards do not use them.
func externalAdminRules() []policyRule {
	return []policyRule{
		rule("get", "update", "delete").groups("core.kcp.io").resources("logicalclusters", "logicalclusters/status"),
		rule("get", "update", "patch", "delete").groups("tenancy.kcp.io").resources("workspaces"),
		rule("get").groups("").resources("serviceaccounts", "secrets"),
		rule("access").urls("/"),
		rule("create").groups("authorization.k8s.io").resources("subjectaccessreviews"),
		rule("get", "list", "watch").groups("apis.kcp.io").resources("apiexportendpointslices"),
		rule("get", "update", "patch").groups("apis.kcp.io").resources("apiexportendpointslices/status"),
		rule("get", "list", "watch").groups("cache.kcp.io").resources("clustercachedresourceendpointslices"),
		rule("get", "update", "patch").groups("cache.kcp.io").resources("clustercachedresourceendpointslices/status"),
		rule("get").groups("tenancy.kcp.io").resources("workspaceauthenticationconfigurations"),
		rule("create").groups("migration.kcp.io").resources("logicalclusterdumps"),
		rule("get", "update", "patch").groups("migration.kcp.io").resources("logicalclustermigrations", "logicalclustermigrations/status"),
		rule("list").groups("apis.kcp.io").resources("apibindings"),
		rule("get").groups("apis.kcp.io").resources("apiexports", "apiresourceschemas"),
		rule("get", "create").groups("apiextensions.k8s.io").resources("customresourcedefinitions"),
	}
}

func systemBindings() []rbacv1.ClusterRoleBinding {
	return []rbacv1.ClusterRoleBinding{
		bindGroups("system:kcp:admin:cluster-admin", "cluster-admin", authorization.GroupAdmin),
		bindGroups(authorization.GroupBootstrapper, authorization.GroupBootstrapper,
			authorization.GroupBootstrapper, authorization.BindingSubjectPrefix+authorization.GroupBootstrapper),
		bindGroups(authorization.GroupLogicalClusterAdmin, authorization.GroupLogicalClusterAdmin, authorization.GroupLogicalClusterAdmin),
		bindGroups(authorization.GroupExternalLogicalClusterAdmin, authorization.GroupExternalLogicalClusterAdmin, authorization.GroupExternalLogicalClusterAdmin),
	}
}

func accessRole() rbacv1.ClusterRole {
	return clusterRole(roleWorkspaceAccess, rule("access").urls("/"))
}

func tenancyReaderRole() rbacv1.ClusterRole {
	return clusterRole(roleTenancyReader,
		rule("get", "list", "watch").groups("tenancy.kcp.io").resources("workspaces", "workspacetypes"),
		rule("get", "list", "watch").groups("core.kcp.io").resources("logicalclusters"))
}

// policyRule builds rules in a compact notation.
type policyRule rbacv1.PolicyRule

func rule(verbs ...string) policyRule { return policyRule{Verbs: verbs} }

func (r policyRule) groups(groups ...string) policyRule { r.APIGroups = groups; return r }

func (r policyRule) resources(resources ...string) policyRule { r.Resources = resources; return r }

func (r policyRule) names(names ...string) policyRule { r.ResourceNames = names; return r }

func (r policyRule) urls(urls ...string) policyRule { r.NonResourceURLs = urls; return r }

func clusterRole(name string, rules ...policyRule) rbacv1.ClusterRole {
	role := rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, r := range rules {
		role.Rules = append(role.Rules, rbacv1.PolicyRule(r))
	}
	return role
}

func bindGroups(name, role string, groups ...string) rbacv1.ClusterRoleBinding {
	binding := rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	for _, group := range groups {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	return binding
}
