package replicatelabel_test

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/sharding/replicatelabel"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestMarksFollowWhatTheyAreAbout(t *testing.T) {
	shard := shardtesting.Start(t)
	cluster := shard.NewWorkspace(t, "root", "marked").Spec.Cluster
	c, in := shard.Client(t, shard.Admin(t)), shardtesting.In(t.Context(), cluster)
	marked := func(obj client.Object, want string) {
		t.Helper()
		shardtesting.Eventually(t, fmt.Sprintf("%T %s is marked %q", obj, obj.GetName(), want), func(context.Context) error {
			if err := c.Get(in, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			if got := obj.GetAnnotations()[corev1alpha1.ReplicateAnnotationKey]; got != want {
				return fmt.Errorf("it is marked %q", got)
			}
			return nil
		})
	}
	create := func(obj client.Object) {
		t.Helper()
		if err := c.Create(in, obj); err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

	logicalCluster := &corev1alpha1.LogicalCluster{ObjectMeta: named(corev1alpha1.LogicalClusterName)}
	marked(logicalCluster, "")
	admin := &rbacv1.ClusterRoleBinding{ObjectMeta: named("workspace-admin")}
	if err := c.Get(in, client.ObjectKeyFromObject(admin), admin); err != nil || admin.Annotations[corev1alpha1.ReplicateAnnotationKey] != replicatelabel.AdminBindingValue {
		t.Errorf("the administrator is marked %v, %v", admin.Annotations, err)
	}

	bind := rbacv1.PolicyRule{APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}, Verbs: []string{"bind"}}
	enter := rbacv1.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}}
	role := &rbacv1.ClusterRole{ObjectMeta: named("binder"), Rules: []rbacv1.PolicyRule{bind, enter}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: named("binder"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "binder"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bob"}},
	}
	create(binding) // before the role that it refers to
	create(role)
	marked(role, "apis.kcp.io")
	marked(binding, "apis.kcp.io")

	t.Log("an export makes the logical cluster known to others, and who may enter it")
	export := &apisv1alpha2.APIExport{ObjectMeta: named("export")}
	create(export)
	marked(logicalCluster, "apis.kcp.io")
	marked(role, "apis.kcp.io,core.kcp.io")
	marked(binding, "apis.kcp.io,core.kcp.io")
	marked(admin, "apis.kcp.io,core.kcp.io,tenancy.kcp.io")

	t.Log("and all of that ends with its reason")
	if err := c.Delete(in, export); err != nil {
		t.Fatal(err)
	}
	marked(logicalCluster, "")
	marked(role, "apis.kcp.io")
	role.Rules = []rbacv1.PolicyRule{enter}
	if err := c.Update(in, role); err != nil {
		t.Fatal(err)
	}
	marked(role, "")
	marked(binding, "")
	marked(admin, replicatelabel.AdminBindingValue)
}
