package process

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
)

// readyTimeout is "ready in seconds" on a busy machine, the generation of a 4096 bit key included.
const readyTimeout = 30 * time.Second

// TestSingleShard covers first start, clean stop and second start of one shard.
func TestSingleShard(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "kcp")
	began := time.Now()
	s := start(t, root, "--batteries-included=+user")
	took := time.Since(began)
	t.Logf("ready after %s", took.Round(time.Millisecond))
	if took > readyTimeout {
		t.Errorf("ready after %s, want at most %s", took, readyTimeout)
	}
	t.Run("files", func(t *testing.T) { testFiles(t, root) })
	t.Run("contexts", func(t *testing.T) { testContexts(t, s) })
	t.Run("readiness", func(t *testing.T) { testReadiness(t, s) })
	t.Run("tokens are signed and verified with the same key", func(t *testing.T) { testTokenAcrossReplicas(t, s, s, "root") })

	t.Run("a new Shard can be updated by its creator", func(t *testing.T) { testNewShard(t, s) })

	first := map[string]*rest.Config{}
	for _, name := range []string{"root", "shard-base", "user"} {
		first[name] = s.config(t, name)
	}
	cluster := newWorkspace(t, s, "kept")
	createConfigMap(t, s, cluster, "kept", "1")
	watcher := openWatch(t, s)
	began = time.Now()
	s.stop(t)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("shutdown with an open watch took %s", took)
	}
	select { // an open watch does not delay the stop, and is closed
	case <-watcher:
	case <-time.After(10 * time.Second):
		t.Error("the watch did not end with the server")
	}

	s = start(t, root, "--batteries-included=+user")
	t.Run("data persists", func(t *testing.T) {
		if got := getConfigMap(t, s, cluster, "kept"); got != "1" {
			t.Errorf("the config map has value %q", got)
		}
		expectStatus(t, clusterConfig(s.config(t, "base"), "root:kept"), "/api/v1/namespaces", http.StatusOK)
	})
	t.Run("only the token of shard-admin persists", func(t *testing.T) {
		for name, want := range map[string]int{"shard-base": http.StatusOK, "root": http.StatusUnauthorized, "user": http.StatusUnauthorized} {
			old := rest.CopyConfig(s.config(t, "shard-base"))
			old.BearerToken = first[name].BearerToken
			expectStatus(t, clusterConfig(old, "root"), "/version", want)
		}
	})
	s.stop(t)
	t.Run("a missing or changed admin token ends the start", func(t *testing.T) { testLostToken(t, root) })
}

func clusterConfig(config *rest.Config, path string) *rest.Config {
	return shardtesting.At(config, path)
}

func testFiles(t *testing.T, root string) {
	for file, mode := range map[string]os.FileMode{
		".": 0o700, "admin.kubeconfig": 0o600, ".admin-token-store": 0o600, "sa.key": 0o600, "apiserver.crt": 0, "apiserver.key": 0o600,
		"etcd-server/secrets/ca/cert.pem": 0, "etcd-server/secrets/peer/cert.pem": 0, "etcd-server/secrets/client/key.pem": 0o600,
	} {
		info, err := os.Stat(filepath.Join(root, file))
		if err != nil {
			t.Error(err)
		} else if mode != 0 && info.Mode().Perm() != mode {
			t.Errorf("%s has mode %o, want %o", file, info.Mode().Perm(), mode)
		}
	}
	digest, err := os.ReadFile(filepath.Join(root, ".admin-token-store"))
	if err != nil || len(digest) != sha256.Size {
		t.Errorf("the digest has %d bytes: %v", len(digest), err)
	}
}

// testContexts checks the kubeconfig against contract kcp-topology 1.8, and that each context reaches the right
// endpoint.
func testContexts(t *testing.T, s *shard) {
	kubeconfig, err := clientcmd.LoadFromFile(filepath.Join(s.directory, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if kubeconfig.CurrentContext != "root" {
		t.Errorf("the current context is %q", kubeconfig.CurrentContext)
	}
	got := map[string]string{}
	for name, c := range kubeconfig.Contexts {
		got[name] = c.Cluster + " as " + c.AuthInfo
	}
	want := map[string]string{
		"root": "root as kcp-admin", "base": "base as kcp-admin", "user": "root as user",
		"system:admin": "system:admin as shard-admin", "shard-base": "base as shard-admin",
	}
	if !maps.Equal(got, want) {
		t.Errorf("contexts are %v, want %v", got, want)
	}
	base := kubeconfig.Clusters["base"].Server
	for name, path := range map[string]string{"root": "/clusters/root", "base": "", "system:admin": "/clusters/system:admin"} {
		if server := kubeconfig.Clusters[name].Server; server != base+path || !strings.HasPrefix(server, "https://127.0.0.1:") {
			t.Errorf("cluster %s is at %s", name, server)
		}
	}
	for name, path := range map[string]string{
		"root":         "/apis/tenancy.kcp.io/v1alpha1/workspaces",
		"user":         "/apis/tenancy.kcp.io/v1alpha1/workspaces",
		"base":         "/clusters/root/api/v1/secrets",
		"system:admin": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"shard-base":   "/clusters/*/api/v1/namespaces",
	} {
		expectStatus(t, s.config(t, name), path, http.StatusOK)
	}
	expectStatus(t, s.config(t, "user"), "/api/v1/secrets", http.StatusForbidden)
	expectStatus(t, s.config(t, "base"), "/clusters/*/api/v1/namespaces", http.StatusForbidden)
}

func testReadiness(t *testing.T, s *shard) {
	anonymous := rest.AnonymousClientConfig(s.config(t, "shard-base"))
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/clusters/root/livez"} {
		expectStatus(t, anonymous, path, http.StatusOK)
	}
	for _, check := range []string{"poststarthook/kcp-bootstrap-policy", "poststarthook/kcp-start-controllers", "etcd"} {
		expectStatus(t, s.config(t, "shard-base"), "/readyz/"+check, http.StatusOK)
	}
	expectStatus(t, anonymous, "/metrics", http.StatusForbidden)
	expectStatus(t, s.config(t, "shard-base"), "/metrics", http.StatusOK)
}

// testNewShard creates a Shard that does not run, and updates it after its health has been checked.
func testNewShard(t *testing.T, s *shard) {
	c, ctx := s.client(t, "shard-base"), shardtesting.In(t.Context(), "root")
	created := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "planned"}, Spec: corev1alpha1.ShardSpec{BaseURL: "https://planned.example.com"}}
	if err := c.Create(ctx, created); err != nil {
		t.Fatal(err)
	}
	waitForHealthChecks(t, s, 3) // two objects are checked
	created.Labels = map[string]string{"region": "here"}
	if err := c.Update(ctx, created); err != nil {
		t.Errorf("updating the new Shard: %v", err)
	}
	if err := c.Delete(ctx, created); err != nil {
		t.Error(err)
	}
}

// testLostToken covers a missing or changed token of shard-admin whose digest exists.
func testLostToken(t *testing.T, root string) {
	kubeconfig := filepath.Join(root, "admin.kubeconfig")
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		t.Fatal(err)
	}
	other := []byte(strings.ReplaceAll(string(content), config.AuthInfos["shard-admin"].Token, "another"))
	for name, tc := range map[string]struct {
		kubeconfig []byte
		want       []string
	}{
		"no kubeconfig": {nil, []string{"empty token"}},
		"another token": {other, []string{"does not match", ".admin-token-store"}},
	} {
		if err := os.Remove(kubeconfig); err != nil {
			t.Fatal(err)
		}
		if tc.kubeconfig != nil {
			if err := os.WriteFile(kubeconfig, tc.kubeconfig, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		failed := launchShard(t, root)
		if code := failed.Exit(t); code != 1 {
			t.Errorf("%s: exit code %d, want 1", name, code)
		}
		for _, want := range tc.want {
			if !strings.Contains(failed.Output(), want) {
				t.Errorf("%s: the output does not contain %q:\n%s", name, want, failed.Tail())
			}
		}
		if tc.kubeconfig == nil {
			if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// newWorkspace creates a workspace in root, waits until it is Ready and returns its logical cluster.
func newWorkspace(t *testing.T, s *shard, name string) string {
	t.Helper()
	c := s.client(t, "base")
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Create(shardtesting.In(t.Context(), "root"), workspace); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "workspace "+name, func(ctx context.Context) error {
		if err := c.Get(shardtesting.In(ctx, "root"), client.ObjectKeyFromObject(workspace), workspace); err != nil {
			return err
		}
		if workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			return diffError("phase", workspace.Status.Phase, corev1alpha1.LogicalClusterPhaseReady)
		}
		return nil
	})
	return workspace.Spec.Cluster
}

func createConfigMap(t *testing.T, s *shard, cluster, name, value string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{"value": value}}
	if err := s.client(t, "base").Create(shardtesting.In(t.Context(), cluster), cm); err != nil {
		t.Fatal(err)
	}
}

func getConfigMap(t *testing.T, s *shard, cluster, name string) string {
	t.Helper()
	cm := &corev1.ConfigMap{}
	if err := s.client(t, "base").Get(shardtesting.In(t.Context(), cluster), client.ObjectKey{Namespace: "default", Name: name}, cm); err != nil {
		t.Fatal(err)
	}
	return cm.Data["value"]
}

// openWatch opens a watch over all logical clusters and returns a channel that is closed when it ends.
func openWatch(t *testing.T, s *shard) <-chan struct{} {
	t.Helper()
	config := clusterConfig(s.config(t, "shard-base"), "*")
	config.Timeout = 0
	watcher, err := s.kubernetes(t, config).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range watcher.ResultChan() { // only the end of the watch matters
		}
	}()
	t.Cleanup(watcher.Stop)
	return ended
}

// TestKillDuringWrites checks that acknowledged writes survive a kill -9.
func TestKillDuringWrites(t *testing.T) {
	t.Parallel()
	root := newRootDirectory(t)
	s := start(t, root)
	cluster := newWorkspace(t, s, "busy")
	createConfigMap(t, s, cluster, "counter", "0")

	const writers, enough = 4, 150
	acknowledged := make(chan string, 10000)
	ended := make(chan struct{}, writers)
	for writer := range writers {
		c := s.client(t, "base")
		go func() {
			defer func() { ended <- struct{}{} }()
			for i := 0; ; i++ {
				name := fmt.Sprintf("w%d-%d", writer, i)
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
				if err := c.Create(shardtesting.In(context.Background(), cluster), cm); err != nil {
					return // the shard is killed
				}
				acknowledged <- name
			}
		}()
	}
	var names []string
	for len(names) < enough {
		select {
		case name := <-acknowledged:
			names = append(names, name)
		case <-time.After(programs.ExitTimeout):
			t.Fatalf("only %d writes were acknowledged", len(names))
		}
	}
	s.kill(t)
	for range writers {
		<-ended
	}
	close(acknowledged)
	for name := range acknowledged {
		names = append(names, name)
	}

	s = start(t, root)
	var list corev1.ConfigMapList
	if err := s.client(t, "base").List(shardtesting.In(t.Context(), cluster), &list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	var present []string
	for _, item := range list.Items {
		present = append(present, item.Name)
	}
	lost := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(present, name) })
	t.Logf("%d writes were acknowledged before the kill", len(names))
	if len(lost) > 0 {
		t.Errorf("%d of them are lost: %v", len(lost), lost)
	}
	newWorkspace(t, s, "after") // the controllers work again
	s.stop(t)
}
