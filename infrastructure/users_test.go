package infrastructure_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// users have the token "<name>-token" and no group but system:authenticated.
var users = []string{"alice", "bob", "reader", "nobody"}

func tokenOf(user string) string { return user + "-token" }

// writeTokens writes the file with the tokens of users.
func writeTokens(t *testing.T) string {
	t.Helper()
	var lines []string
	for _, user := range users {
		lines = append(lines, fmt.Sprintf("%s,%s,%s", tokenOf(user), user, user))
	}
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// grant grants a user a role in a workspace: the given rules, or those of an administrator. It waits until the user has access.
func (e *env) grant(t *testing.T, cluster, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	c := e.inWorkspace(t, cluster)
	role := "cluster-admin"
	if len(rules) > 0 {
		role = user
		if err := c.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(shardtesting.At(e.shard.Admin(t), cluster))
	config.BearerToken = tokenOf(user)
	discovery := e.shard.Kubernetes(t, config).Discovery().RESTClient()
	shardtesting.Eventually(t, user+" to enter", func(ctx context.Context) error {
		return discovery.Get().AbsPath("/apis").Do(ctx).Error()
	})
}
