package replicatelabel

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// ruled is a logical cluster with one rule, that of a ClusterRole "role" that a binding "binding" refers to.
func ruled(exports bool, rule rbac.PolicyRule) *scope {
	return &scope{
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

func with(s *scope, change func(*scope)) *scope {
	change(s)
	return s
}

func TestWhatTravels(t *testing.T) {
	resources := func(group, resource, verb string) rbac.PolicyRule {
		return rbac.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
	}
	enter := rbac.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}}
	both := func(words string) map[string]string { return map[string]string{"role": words, "binding": words} }
	annotated := func(words string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "role", Annotations: map[string]string{corev1alpha1.ReplicateAnnotationKey: words}}
	}
	for name, tc := range map[string]struct {
		in   *scope
		want map[string]string
	}{
		"who may bind":                          {ruled(false, resources("apis.kcp.io", "apiexports", "bind")), both("apis.kcp.io")},
		"who may show cached resources":         {ruled(false, resources("cache.kcp.io", "clustercachedresources", "bind")), both("apis.kcp.io")},
		"a cluster with cached resources":       {with(ruled(false, rbac.PolicyRule{}), func(s *scope) { s.offers = true }), map[string]string{"cluster": "apis.kcp.io"}},
		"not who may read exports":              {ruled(false, resources("apis.kcp.io", "apiexports", "get")), nil},
		"nor who may bind something else":       {ruled(false, resources("example.io", "apiexports", "bind")), nil},
		"who may do anything to content":        {ruled(false, resources("apis.kcp.io", "apiexports/content", "get")), both("apis.kcp.io")},
		"who may use a type":                    {ruled(false, resources("tenancy.kcp.io", "workspacetypes", "use")), both("tenancy.kcp.io")},
		"who may initialize":                    {ruled(false, resources("tenancy.kcp.io", "workspacetypes", "initialize")), both("tenancy.kcp.io")},
		"not who may list types":                {ruled(false, resources("tenancy.kcp.io", "workspacetypes", "list")), nil},
		"who may do everything":                 {ruled(false, resources("*", "*", "*")), both(AdminBindingValue)},
		"not who may enter what nobody knows":   {ruled(false, enter), nil},
		"who may enter what others know":        {ruled(true, enter), map[string]string{"role": "core.kcp.io", "binding": "core.kcp.io", "cluster": "apis.kcp.io"}},
		"a cluster with a type":                 {with(ruled(false, rbac.PolicyRule{}), func(s *scope) { s.types = true }), map[string]string{"cluster": "tenancy.kcp.io"}},
		"a cluster with exports and types":      {with(ruled(true, rbac.PolicyRule{}), func(s *scope) { s.types = true }), map[string]string{"cluster": "apis.kcp.io,tenancy.kcp.io"}},
		"a mark that is right stays":            {with(ruled(false, resources("apis.kcp.io", "apiexports", "bind")), func(s *scope) { s.roles[0].ObjectMeta = annotated("apis.kcp.io") }), map[string]string{"binding": "apis.kcp.io"}},
		"a mark that is wrong goes":             {with(ruled(false, rbac.PolicyRule{}), func(s *scope) { s.roles[0].ObjectMeta = annotated("apis.kcp.io") }), map[string]string{"role": ""}},
		"what others want stays":                {with(ruled(false, rbac.PolicyRule{}), func(s *scope) { s.roles[0].ObjectMeta = annotated("other.io,apis.kcp.io") }), map[string]string{"role": "other.io"}},
		"a binding to a role of system:admin":   {with(ruled(false, resources("apis.kcp.io", "apiexports", "bind")), func(s *scope) { s.shared, s.roles = s.roles, nil }), map[string]string{"binding": "apis.kcp.io"}},
		"a binding to a role that there is not": {with(ruled(false, rbac.PolicyRule{}), func(s *scope) { s.roles = nil }), nil},
		"a policy for users of bound APIs": {with(ruled(false, rbac.PolicyRule{}), func(s *scope) {
			s.bindings[0] = bindingTo("role", rbac.Subject{Kind: rbac.GroupKind, Name: "apis.kcp.io:binding:x"})
		}), both("apis.kcp.io")},
		"not for service accounts of such a name": {with(ruled(false, rbac.PolicyRule{}), func(s *scope) {
			s.bindings[0] = bindingTo("role", rbac.Subject{Kind: rbac.ServiceAccountKind, Name: "apis.kcp.io:binding:x"})
		}), nil},
		"its own role, not that of the same name": {with(ruled(false, rbac.PolicyRule{}), func(s *scope) {
			s.shared = []*rbac.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "role"}, Rules: []rbac.PolicyRule{resources("*", "*", "*")}}}
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got map[string]string
			for _, mark := range tc.in.changes() {
				if got == nil {
					got = map[string]string{}
				}
				got[mark.name] = mark.value
			}
			if !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
