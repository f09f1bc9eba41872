package replicatelabel

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// newClusterState returns a logical cluster with one rule: that of ClusterRole "role", which ClusterRoleBinding
// "binding" references.
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
		"bind exports":                               {newClusterState(false, resources("apis.kcp.io", "apiexports", "bind")), wantBoth("apis.kcp.io")},
		"bind cached resources":                      {newClusterState(false, resources("cache.kcp.io", "clustercachedresources", "bind")), wantBoth("apis.kcp.io")},
		"cluster with cached resources":              {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.cachedResources = true }), map[string]string{"cluster": "apis.kcp.io"}},
		"get exports":                                {newClusterState(false, resources("apis.kcp.io", "apiexports", "get")), nil},
		"bind exports of another group":              {newClusterState(false, resources("example.io", "apiexports", "bind")), nil},
		"content of exports":                         {newClusterState(false, resources("apis.kcp.io", "apiexports/content", "get")), wantBoth("apis.kcp.io")},
		"use types":                                  {newClusterState(false, resources("tenancy.kcp.io", "workspacetypes", "use")), wantBoth("tenancy.kcp.io")},
		"initialize types":                           {newClusterState(false, resources("tenancy.kcp.io", "workspacetypes", "initialize")), wantBoth("tenancy.kcp.io")},
		"list types":                                 {newClusterState(false, resources("tenancy.kcp.io", "workspacetypes", "list")), nil},
		"all verbs on all resources":                 {newClusterState(false, resources("*", "*", "*")), wantBoth(AdminBindingValue)},
		"access to a cluster that is not replicated": {newClusterState(false, access), nil},
		"access to a replicated cluster":             {newClusterState(true, access), map[string]string{"role": "core.kcp.io", "binding": "core.kcp.io", "cluster": "apis.kcp.io"}},
		"cluster with a type":                        {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.types = true }), map[string]string{"cluster": "tenancy.kcp.io"}},
		"cluster with exports and types":             {modified(newClusterState(true, rbac.PolicyRule{}), func(s *clusterState) { s.types = true }), map[string]string{"cluster": "apis.kcp.io,tenancy.kcp.io"}},
		"correct annotation stays":                   {modified(newClusterState(false, resources("apis.kcp.io", "apiexports", "bind")), func(s *clusterState) { s.roles[0].ObjectMeta = annotated("apis.kcp.io") }), map[string]string{"binding": "apis.kcp.io"}},
		"incorrect annotation is removed":            {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.roles[0].ObjectMeta = annotated("apis.kcp.io") }), map[string]string{"role": ""}},
		"annotation values of other owners stay":     {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.roles[0].ObjectMeta = annotated("other.io,apis.kcp.io") }), map[string]string{"role": "other.io"}},
		"binding to a role of system:admin":          {modified(newClusterState(false, resources("apis.kcp.io", "apiexports", "bind")), func(s *clusterState) { s.adminRoles, s.roles = s.roles, nil }), map[string]string{"binding": "apis.kcp.io"}},
		"binding to a missing role":                  {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) { s.roles = nil }), nil},
		"maximal permission policy": {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) {
			s.bindings[0] = bindingTo("role", rbac.Subject{Kind: rbac.GroupKind, Name: "apis.kcp.io:binding:x"})
		}), wantBoth("apis.kcp.io")},
		"service account with a policy prefix": {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) {
			s.bindings[0] = bindingTo("role", rbac.Subject{Kind: rbac.ServiceAccountKind, Name: "apis.kcp.io:binding:x"})
		}), nil},
		"own role precedes one of system:admin": {modified(newClusterState(false, rbac.PolicyRule{}), func(s *clusterState) {
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
