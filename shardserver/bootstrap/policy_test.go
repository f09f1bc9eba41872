package bootstrap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func roles(objects []client.Object) map[string]*rbacv1.ClusterRole {
	found := map[string]*rbacv1.ClusterRole{}
	for _, obj := range objects {
		if role, ok := obj.(*rbacv1.ClusterRole); ok {
			found[role.Name] = role
		}
	}
	return found
}

func bindings(objects []client.Object) map[string]*rbacv1.ClusterRoleBinding {
	found := map[string]*rbacv1.ClusterRoleBinding{}
	for _, obj := range objects {
		if binding, ok := obj.(*rbacv1.ClusterRoleBinding); ok {
			found[binding.Name] = binding
		}
	}
	return found
}

func everything() Options {
	return Options{
		ShardName: "root", BaseURL: "https://shard.example", Root: true,
		Batteries:      []string{batteryWorkspaceTypes, batteryMetricsViewer},
		HomeWorkspaces: true, HomeCreatorGroups: []string{"system:authenticated"},
	}
}

func TestAggregatedRolesHaveTheRulesOfWhatTheySelect(t *testing.T) {
	found := roles(systemPolicy())
	may := func(role, verb, resource string) bool {
		return slices.ContainsFunc(found[role].Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Verbs, verb) && slices.Contains(rule.Resources, resource)
		})
	}
	for _, role := range []string{"admin", "edit", "view"} {
		if !may(role, "list", "configmaps") {
			t.Errorf("%s cannot list config maps", role)
		}
	}
	if !may("edit", "create", "configmaps") || !may("admin", "create", "configmaps") || may("view", "create", "configmaps") {
		t.Error("who edits may create, and who administers may what an editor may")
	}
	if !may("admin", "create", "rolebindings") || may("edit", "create", "rolebindings") {
		t.Error("only who administers may bind roles")
	}
}

func TestEveryBindingRefersToARoleThatExists(t *testing.T) {
	system, root := systemPolicy(), append(rootPolicy(everything()), metricsViewer(everything())...)
	known := roles(system)
	for name, objects := range map[string][]client.Object{"system:admin": system, "root": root} {
		own := roles(objects)
		for _, binding := range bindings(objects) {
			if own[binding.RoleRef.Name] == nil && known[binding.RoleRef.Name] == nil {
				t.Errorf("%s: %s refers to %s, which nobody writes", name, binding.Name, binding.RoleRef.Name)
			}
		}
	}
}

func TestNoTenantCanBecomeASubjectOfTheSystemPolicy(t *testing.T) {
	for name, binding := range bindings(systemPolicy()) {
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

func TestObjectsOfAStageAreWrittenOnce(t *testing.T) {
	for _, s := range allStages(t, everything()) {
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

func TestOnlyTheRootShardHoldsRoot(t *testing.T) {
	options := everything()
	options.Root = false
	for _, s := range allStages(t, options) {
		if !s.cluster.IsSystem() {
			t.Errorf("writes to %s", s.cluster)
		}
	}
}
