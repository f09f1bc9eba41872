package syncagent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/test/installation"
)

// rulesOf reads the rules of a role of config/sync-agent.
func rulesOf(t *testing.T, file, name string) []rbacv1.PolicyRule {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "sync-agent", file))
	if err != nil {
		t.Fatal(err)
	}
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		role := &rbacv1.ClusterRole{}
		if err := documents.Decode(role); err != nil {
			t.Fatalf("%s has no role %s: %v", file, name, err)
		}
		if role.Name == name {
			return role.Rules
		}
	}
}

// The agent works with the roles of config/sync-agent and the rules that owners add for the resources that they publish.
func TestRolesOfTheServiceClusterAreEnough(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	user := e.Name + "-restricted"
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	owners := rbacv1.PolicyRule{APIGroups: []string{e.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}}
	create(t, e.Service, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: append(rulesOf(t, "role.yaml", "sync-agent-base"), owners)})
	create(t, e.Service, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user}, Subjects: subjects,
	})
	create(t, e.Service, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: user}, Rules: rulesOf(t, "namespace_role.yaml", "sync-agent")})
	create(t, e.Service, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}, Subjects: subjects,
	})
	e.Agent(t, func(o *options.Options) {
		installation.WriteKubeconfig(t, e.cluster.User(t, e.cluster.Config.Host, user), o.Kubeconfig)
		o.EnableLeaderElection = true
	})
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	copied.Object["status"] = map[string]any{"ready": true}
	if err := e.Service.Status().Update(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	expectStatus(t, c, object)
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, c, object)
	expectNoCopy(t, e, kind, c, object)
}
