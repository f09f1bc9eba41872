package installation

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// NewWorkspace creates a universal workspace below root for a tenant who is its administrator, but no kcp
// administrator, and returns that tenant's client configuration, through the front proxy.
func (i *Installation) NewWorkspace(t testing.TB, name, tenant string, changes ...func(*tenancyv1alpha1.Workspace)) *rest.Config {
	t.Helper()
	c, err := loopback.NewClient(i.client(t, i.URL, adminName, admins))
	if err != nil {
		t.Fatal(err)
	}
	shardtesting.NewWorkspace(t, c, "root", name, changes...)
	path := "root:" + name
	i.grantAdmin(t, path, tenant)
	config := i.User(t, path, tenant)
	shardtesting.Eventually(t, tenant+" has access to workspace "+name, func(ctx context.Context) error {
		clientset, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	})
	return config
}

// grantAdmin makes a user administrator of the workspace at a path.
func (i *Installation) grantAdmin(t testing.TB, path, tenant string) {
	t.Helper()
	i.bind(t, path, "tenant", "cluster-admin", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: tenant})
}

// Bind gives a user the rights of a ClusterRole in the workspace at a path.
func (i *Installation) Bind(t testing.TB, path, role, user string) {
	t.Helper()
	i.bind(t, path, user, role, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
}

// Open lets all authenticated users access the workspace at a path. It grants no permissions in it.
func (i *Installation) Open(t testing.TB, path string) {
	t.Helper()
	i.bind(t, path, "all-users", "system:kcp:workspace:access", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"})
}

func (i *Installation) bind(t testing.TB, path, name, role string, subject rbacv1.Subject) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(i.Admin(t, path))
	if err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "binding "+role+" in "+path, func(ctx context.Context) error {
		_, err := clientset.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{subject},
		}, metav1.CreateOptions{})
		return err
	})
}
