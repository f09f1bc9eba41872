package sharding_test

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

func TestReplicateAnnotations(t *testing.T) {
	shard := shardtesting.Start(t)
	cluster := shard.NewWorkspace(t, "root", "marked").Spec.Cluster
	c, in := shard.Client(t, shard.Admin(t)), shardtesting.In(t.Context(), cluster)
	eventuallyAnnotated := func(obj client.Object, want string) {
		t.Helper()
		shardtesting.Eventually(t, fmt.Sprintf("%T %s has annotation %q", obj, obj.GetName(), want), func(context.Context) error {
			if err := c.Get(in, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			if got := obj.GetAnnotations()[corev1alpha1.ReplicateAnnotationKey]; got != want {
				return fmt.Errorf("it has annotation %q", got)
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
	objectMeta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

	logicalCluster := &corev1alpha1.LogicalCluster{ObjectMeta: objectMeta(corev1alpha1.LogicalClusterName)}
	eventuallyAnnotated(logicalCluster, "")
	admin := &rbacv1.ClusterRoleBinding{ObjectMeta: objectMeta("workspace-admin")}
	if err := c.Get(in, client.ObjectKeyFromObject(admin), admin); err != nil || admin.Annotations[corev1alpha1.ReplicateAnnotationKey] != replicatelabel.AdminBindingValue {
		t.Errorf("the administrator has annotations %v, %v", admin.Annotations, err)
	}

	bind := rbacv1.PolicyRule{APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}, Verbs: []string{"bind"}}
	access := rbacv1.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}}
	role := &rbacv1.ClusterRole{ObjectMeta: objectMeta("binder"), Rules: []rbacv1.PolicyRule{bind, access}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: objectMeta("binder"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "binder"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bob"}},
	}
	create(binding) // before the role that it references
	create(role)
	eventuallyAnnotated(role, "apis.kcp.io")
	eventuallyAnnotated(binding, "apis.kcp.io")

	t.Log("an export causes the replication of the logical cluster and of its access rules")
	export := &apisv1alpha2.APIExport{ObjectMeta: objectMeta("export")}
	create(export)
	eventuallyAnnotated(logicalCluster, "apis.kcp.io")
	eventuallyAnnotated(role, "apis.kcp.io,core.kcp.io")
	eventuallyAnnotated(binding, "apis.kcp.io,core.kcp.io")
	eventuallyAnnotated(admin, "apis.kcp.io,core.kcp.io,tenancy.kcp.io")

	t.Log("both end with the export")
	if err := c.Delete(in, export); err != nil {
		t.Fatal(err)
	}
	eventuallyAnnotated(logicalCluster, "")
	eventuallyAnnotated(role, "apis.kcp.io")
	role.Rules = []rbacv1.PolicyRule{access}
	if err := c.Update(in, role); err != nil {
		t.Fatal(err)
	}
	eventuallyAnnotated(role, "")
	eventuallyAnnotated(binding, "")
	eventuallyAnnotated(admin, replicatelabel.AdminBindingValue)
}
