package replicatelabel

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// newClusterState is a logical cluster with one rule, that of a ClusterRole "role" that a binding "binding" refers to.
func newClusterState(exports bool, rule rbac.PolicyRule) *clusterState {
	return &clusterState{
		cluster:  &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
		roles:    []*rbac.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "role"}, Rules: []rbac.PolicyRule{rule}}},
		bindings: []*rbac.ClusterRoleBinding{bindingTo("role", rbac.Subject{Kind: rbac.UserKind, Name: "alice"})},
		exports:  exports,
	}
}

func bindingTo(role string, subjects ...rbac.Subject) *rbac.ClusterRoleBinding {
	return &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "binding"},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects,
	}
}

func modified(s *clusterState, change func(*clusterState)) *clusterState {
	change(s)
	return s
}

func TestChanges(t *testing.T) {
	resources := func(group, resource, verb string) rbac.PolicyRule {
		return rbac.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
	}
	access := rbac.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}}
	wantBoth := func(value string) map[string]string { return map[string]string{"role": value, "binding": value} }
	annotated := func(value string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "role", Annotations: map[string]string{corev1alpha1.ReplicateAnnotationKey: value}}
	}
	for name, tc := range map[string]struct {
		state *clusterState
		want  map[string]string
	}{
		"who may bind":                          {newClusterState(false, resources("apis.kcp.io", "apiexports", "bind")), wantBoth("apis.kcp.io")},
		"who may show cached resources":         {newClusterState(false, resources("cache.kcp.io", "clustercachedresources", "bind")), wantBoth("apis.kcp.io")},
		"a cluster with cached resources":       {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.cachedResources = true }), map[string]string{"cluster": "apis.kcp.io"}},
		"not who may read exports":              {newClusterState(false, resources("apis.kcp.io", "apiexports", "get")), nil},
		"nor who may bind something else":       {newClusterState(false, resources("example.io", "apiexports", "bind")), nil},
		"who may do anything to content":        {newClusterState(false, resources("apis.kcp.io", "apiexports/content", "get")), wantBoth("apis.kcp.io")},
		"who may use a type":                    {newClusterState(false, resources("tenancy.kcp.io", "workspacetypes", "use")), wantBoth("tenancy.kcp.io")},
		"who may initialize":                    {newClusterState(false, resources("tenancy.kcp.io", "workspacetypes", "initialize")), wantBoth("tenancy.kcp.io")},
		"not who may list types":                {newClusterState(false, resources("tenancy.kcp.io", "workspacetypes", "list")), nil},
		"who may do everything":                 {newClusterState(false, resources("*", "*", "*")), wantBoth(AdminBindingValue)},
		"not who may enter what nobody knows":   {newClusterState(false, access), nil},
		"who may enter what others know":        {newClusterState(true, access), map[string]string{"role": "core.kcp.io", "binding": "core.kcp.io", "cluster": "apis.kcp.io"}},
		"a cluster with a type":                 {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.types = true }), map[string]string{"cluster": "tenancy.kcp.io"}},
		"a cluster with exports and types":      {modified(newClusterState(true, rbac.PolicyRule{}), func(s *clusterState) { s.types = true }), map[string]string{"cluster": "apis.kcp.io,tenancy.kcp.io"}},
		"a mark that is right stays":            {modified(newClusterState(false, resources("apis.kcp.io", "apiexports", "bind")), func(s *clusterState) { s.roles[0].ObjectMeta = annotated("apis.kcp.io") }), map[string]string{"binding": "apis.kcp.io"}},
		"a mark that is wrong goes":             {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.roles[0].ObjectMeta = annotated("apis.kcp.io") }), map[string]string{"role": ""}},
		"what others want stays":                {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.roles[0].ObjectMeta = annotated("other.io,apis.kcp.io") }), map[string]string{"role": "other.io"}},
		"a binding to a role of system:admin":   {modified(newClusterState(false, resources("apis.kcp.io", "apiexports", "bind")), func(s *clusterState) { s.adminRoles, s.roles = s.roles, nil }), map[string]string{"binding": "apis.kcp.io"}},
		"a binding to a role that there is not": {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.roles = nil }), nil},
		"a policy for users of bound APIs": {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) {
			s.bindings[0] = bindingTo("role", rbac.Subject{Kind: rbac.GroupKind, Name: "apis.kcp.io:binding:x"})
		}), wantBoth("apis.kcp.io")},
		"not for service accounts of such a name": {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) {
			s.bindings[0] = bindingTo("role", rbac.Subject{Kind: rbac.ServiceAccountKind, Name: "apis.kcp.io:binding:x"})
		}), nil},
		"its own role, not that of the same name": {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) {
			s.adminRoles = []*rbac.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "role"}, Rules: []rbac.PolicyRule{resources("*", "*", "*")}}}
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got map[string]string
			for _, change := range tc.state.changes() {
				if got == nil {
					got = map[string]string{}
				}
				got[change.name] = change.value
			}
			if !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
