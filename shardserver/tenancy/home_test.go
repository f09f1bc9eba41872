package tenancy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const homePath = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/~"

func impersonate(t *testing.T, shard *shardtesting.Shard, name string, groups ...string) *rest.Config {
	config := rest.CopyConfig(shard.Masters(t))
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	return config
}

func TestHomeWorkspaces(t *testing.T) {
	const owners = "owners"
	shard := shardtesting.Start(t, func(o *options.Options) { o.Home.CreatorGroups = []string{owners} })
	masters := shard.Client(t, shard.Masters(t))

	t.Run("the first request creates the home workspace, which is returned when it is ready", func(t *testing.T) {
		alice := impersonate(t, shard, "alice", owners)
		var workspace tenancyv1alpha1.Workspace
		shardtesting.Eventually(t, "a home", func(context.Context) error {
			resp, body := shardtesting.Send(t, alice, http.MethodGet, homePath, "")
			switch resp.StatusCode {
			case http.StatusTooManyRequests:
				if resp.Header.Get("Retry-After") != "1" || strings.TrimSpace(body) != "Creating the home workspace" {
					t.Errorf("pending response is %v %q", resp.Header, body)
				}
				return fmt.Errorf("not yet")
			case http.StatusOK:
				return json.Unmarshal([]byte(body), &workspace)
			}
			t.Fatalf("%s: %s", resp.Status, body)
			return nil
		})
		cluster := logicalcluster.HomeName("alice").String()
		if workspace.Kind != "Workspace" || workspace.Name != "cluster" || workspace.UID != "" || workspace.ResourceVersion != "" || workspace.CreationTimestamp.IsZero() ||
			workspace.Spec.Cluster != cluster || !strings.HasSuffix(workspace.Spec.URL, "/clusters/"+cluster) || workspace.Status.Phase != "Ready" {
			t.Errorf("got %+v", workspace)
		}
		home := &corev1alpha1.LogicalCluster{}
		if err := masters.Get(shardtesting.In(t.Context(), cluster), client.ObjectKey{Name: "cluster"}, home); err != nil {
			t.Fatal(err)
		}
		if home.Annotations["kcp.io/path"] != "user:alice" || home.Annotations["internal.tenancy.kcp.io/type"] != "root:home" || home.Spec.CreatedBy.Username != "alice" || home.Spec.Owner != nil {
			t.Errorf("got %+v", home)
		}
		var bindings apisv1alpha2.APIBindingList
		if err := masters.List(shardtesting.In(t.Context(), cluster), &bindings); err != nil {
			t.Fatal(err)
		}
		for _, binding := range bindings.Items {
			if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
				t.Errorf("binding %s is %+v", binding.Name, binding.Status)
			}
		}
		if len(bindings.Items) != 2 {
			t.Errorf("it has %d bindings", len(bindings.Items))
		}
	})

	t.Run("its user has access by name and path, and to its children", func(t *testing.T) {
		alice := impersonate(t, shard, "alice", owners)
		for _, cluster := range []string{"user:alice", logicalcluster.HomeName("alice").String()} {
			if resp, body := shardtesting.Send(t, alice, http.MethodGet, "/clusters/"+cluster+"/api/v1/secrets", ""); resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s %s", cluster, resp.Status, body)
			}
		}
		in := shardtesting.In(t.Context(), logicalcluster.HomeName("alice").String())
		if err := shard.Client(t, alice).Create(in, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}); err != nil {
			t.Fatal(err)
		}
		child := shard.WaitReady(t, logicalcluster.HomeName("alice").String(), "lab")
		if !strings.HasSuffix(child.Spec.URL, "/clusters/user:alice:lab") || child.Spec.Type.Name != "universal" {
			t.Errorf("got %+v", child.Spec)
		}
		if resp, body := shardtesting.Send(t, alice, http.MethodGet, "/clusters/user:alice:lab/api/v1/namespaces", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s", resp.Status, body)
		}
	})

	t.Run("other users have no access, and home workspaces of their own", func(t *testing.T) {
		bob := impersonate(t, shard, "bob", owners)
		if resp, body := shardtesting.Send(t, bob, http.MethodGet, "/clusters/user:alice/api/v1/secrets", ""); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s", resp.Status, body)
		}
		if resp, _ := shardtesting.Send(t, bob, http.MethodGet, "/clusters/user:bob/api/v1/secrets", ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("a home workspace that was never requested: %s", resp.Status)
		}
		shardtesting.Eventually(t, "bob's home", func(context.Context) error {
			resp, body := shardtesting.Send(t, bob, http.MethodGet, homePath, "")
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s", resp.Status)
			}
			if !strings.Contains(body, logicalcluster.HomeName("bob").String()) {
				t.Errorf("got %s", body)
			}
			return nil
		})
	})

	t.Run("user whose name looks like a path has no path of another user's workspace", func(t *testing.T) {
		name := "alice:lab"
		imitator := impersonate(t, shard, name, owners)
		shardtesting.Eventually(t, "a home", func(context.Context) error {
			if resp, body := shardtesting.Send(t, imitator, http.MethodGet, homePath, ""); resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s %s", resp.Status, body)
			}
			return nil
		})
		own := logicalcluster.HomeName(name).String()
		in, c := shardtesting.In(t.Context(), own), shard.Client(t, imitator)
		home := &corev1alpha1.LogicalCluster{}
		if err := masters.Get(in, client.ObjectKey{Name: "cluster"}, home); err != nil {
			t.Fatal(err)
		}
		export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}
		if err := c.Create(in, export); err != nil {
			t.Fatal(err)
		}
		if got, has := home.Annotations["kcp.io/path"]; has || export.Annotations["kcp.io/path"] != own {
			t.Errorf("path of the home workspace %q, of its export %q", got, export.Annotations["kcp.io/path"])
		}
		if err := c.Create(in, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "desk"}}); err != nil {
			t.Fatal(err)
		}
		child := shard.WaitReady(t, own, "desk")
		if !strings.HasSuffix(child.Spec.URL, "/clusters/"+own+":desk") {
			t.Errorf("URL of its child: %s", child.Spec.URL)
		}
		if resp, body := shardtesting.Send(t, imitator, http.MethodGet, "/clusters/"+own+":desk/api/v1/namespaces", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("its child: %s %s", resp.Status, body)
		}
		if resp, body := shardtesting.Send(t, imitator, http.MethodGet, "/clusters/user:alice:lab/api/v1/namespaces", ""); resp.StatusCode != http.StatusForbidden {
			t.Errorf("alice's workspace: %s %s", resp.Status, body)
		}
	})

	for name, config := range map[string]*rest.Config{
		"users outside of the creator groups":                       impersonate(t, shard, "carol", "others"),
		"anonymous users":                                           impersonate(t, shard, "system:anonymous", "system:unauthenticated"),
		"service accounts of other workspaces":                      withOrigin(impersonate(t, shard, "system:serviceaccount:default:default", owners), "other"),
		"users of another workspace's authentication configuration": withScope(impersonate(t, shard, "alice", owners), "cluster:other"),
	} {
		t.Run("no home workspace for "+name, func(t *testing.T) {
			if resp, body := shardtesting.Send(t, config, http.MethodGet, homePath, ""); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s", resp.Status, body)
			}
		})
	}

	t.Run("workspaces/~ exists only in root", func(t *testing.T) {
		cluster := shard.NewWorkspace(t, "root", "plain").Spec.Cluster
		if resp, _ := shardtesting.Send(t, shard.Admin(t), http.MethodGet, "/clusters/"+cluster+"/apis/tenancy.kcp.io/v1alpha1/workspaces/~", ""); resp.StatusCode == http.StatusOK {
			t.Errorf("got %s", resp.Status)
		}
	})
}

func withOrigin(config *rest.Config, cluster string) *rest.Config {
	config.Impersonate.Extra = map[string][]string{"authentication.kcp.io/cluster-name": {cluster}}
	return config
}

func withScope(config *rest.Config, scope string) *rest.Config {
	config.Impersonate.Extra = map[string][]string{"authentication.kcp.io/scopes": {scope}}
	return config
}

func TestHomeWorkspacesOff(t *testing.T) {
	shard := shardtesting.Start(t, func(o *options.Options) { o.Home.Enabled = false })
	if resp, body := shardtesting.Send(t, impersonate(t, shard, "alice", "system:authenticated"), http.MethodGet, homePath, ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("%s %s", resp.Status, body)
	}
	role := &rbacv1.ClusterRole{}
	if err := shard.Client(t, shard.Masters(t)).Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: "system:kcp:home-clusterworkspace-create"}, role); err == nil {
		t.Error("the ClusterRole for home workspaces exists")
	}
}
