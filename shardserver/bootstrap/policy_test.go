package bootstrap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func clusterRolesByName(objects []client.Object) map[string]*rbacv1.ClusterRole {
	found := map[string]*rbacv1.ClusterRole{}
	for _, obj := range objects {
		if role, ok := obj.(*rbacv1.ClusterRole); ok {
			found[role.Name] = role
		}
	}
	return found
}

func bindingsByName(objects []client.Object) map[string]*rbacv1.ClusterRoleBinding {
	found := map[string]*rbacv1.ClusterRoleBinding{}
	for _, obj := range objects {
		if binding, ok := obj.(*rbacv1.ClusterRoleBinding); ok {
			found[binding.Name] = binding
		}
	}
	return found
}

func allOptions() Options {
	return Options{
		ShardName: "root", BaseURL: "https://shard.example", Root: true,
		Batteries:      []string{batteryWorkspaceTypes, batteryMetricsViewer},
		HomeWorkspaces: true, HomeCreatorGroups: []string{"system:authenticated"},
	}
}

func TestAggregatedRoles(t *testing.T) {
	found := clusterRolesByName(systemPolicy())
	allows := func(role, verb, resource string) bool {
		return slices.ContainsFunc(found[role].Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Verbs, verb) && slices.Contains(rule.Resources, resource)
		})
	}
	for _, role := range []string{"admin", "edit", "view"} {
		if !allows(role, "list", "configmaps") {
			t.Errorf("%s cannot list config maps", role)
		}
	}
	if !allows("edit", "create", "configmaps") || !allows("admin", "create", "configmaps") || allows("view", "create", "configmaps") {
		t.Error("edit must include create, and admin must include edit")
	}
	if !allows("admin", "create", "rolebindings") || allows("edit", "create", "rolebindings") {
		t.Error("only admin may bind roles")
	}
}

func TestBindingsReferToExistingRoles(t *testing.T) {
	system, root := systemPolicy(), append(rootPolicy(allOptions()), metricsViewer(allOptions())...)
	known := clusterRolesByName(system)
	for name, objects := range map[string][]client.Object{"system:admin": system, "root": root} {
		own := clusterRolesByName(objects)
		for _, binding := range bindingsByName(objects) {
			if own[binding.RoleRef.Name] == nil && known[binding.RoleRef.Name] == nil {
				t.Errorf("%s: %s refers to %s, which is not bootstrapped", name, binding.Name, binding.RoleRef.Name)
			}
		}
	}
}

func TestSystemPolicySubjectsAreReserved(t *testing.T) {
	for name, binding := range bindingsByName(systemPolicy()) {
		for _, subject := range binding.Subjects {
			if subject.Kind == rbacv1.ServiceAccountKind && name != "system:kube-dns" {
				t.Errorf("%s: the service account %s/%s can be created in any workspace", name, subject.Namespace, subject.Name)
			}
			if subject.Kind == rbacv1.GroupKind && !strings.Contains(subject.Name, ":") {
				t.Errorf("%s: the group %q is not reserved", name, subject.Name)
			}
		}
	}
}

func allStages(t *testing.T, options Options) []stage {
	t.Helper()
	all, err := stages(options)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestStageObjectsAreUnique(t *testing.T) {
	for _, s := range allStages(t, allOptions()) {
		seen := map[string]bool{}
		for _, obj := range s.objects {
			key := strings.Join([]string{fmt.Sprintf("%T", obj), obj.GetNamespace(), obj.GetName()}, "/")
			if seen[key] {
				t.Errorf("%s: %s twice", s.cluster, key)
			}
			seen[key] = true
		}
	}
}

func TestRootStagesOnlyOnRootShard(t *testing.T) {
	options := allOptions()
	options.Root = false
	for _, s := range allStages(t, options) {
		if !s.cluster.IsSystem() {
			t.Errorf("writes to %s", s.cluster)
		}
	}
}
