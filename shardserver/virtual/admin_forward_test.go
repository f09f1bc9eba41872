package virtual_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestAdminWorkspaceOfOtherShards: shards that are not root have the same content, with the rights of a shard at the root shard.
func TestAdminWorkspaceOfOtherShards(t *testing.T) {
	ca := shardtesting.NewCA(t, "clients")
	root := shardtesting.Start(t, func(o *options.Options) { o.Authentication.ClientCert.ClientCA = ca.CertFile })
	shards, restart := map[string]*shardtesting.Shard{}, map[string]func() *shardtesting.Shard{}
	for _, name := range []string{"alpha", "beta"} {
		file := kubeconfig(t, ca.Client(t, root.Masters(t), "system:kcp:shard:"+name, "system:kcp:shard"))
		directory, configure := t.TempDir(), []func(*options.Options){root.Peer(t, name), func(o *options.Options) {
			o.Shard.RootKubeconfig, o.Shard.CacheKubeconfig = file, file
		}}
		restart[name] = func() *shardtesting.Shard { return shardtesting.StartIn(t, directory, configure...) }
		shards[name] = restart[name]()
	}
	root.WaitShards(t, "alpha", "beta")
	member := func(shard *shardtesting.Shard, groups ...string) *rest.Config {
		config := rest.CopyConfig(shard.Masters(t))
		config.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: append(groups, "system:authenticated")}
		return config
	}
	atBeta := member(shards["beta"], "system:kcp:admin")
	list := func(t *testing.T, as *rest.Config, prefix string) corev1alpha1.ShardList {
		t.Helper()
		status, body := send(t, as, http.MethodGet, view+prefix+shardsPath, "")
		var list corev1alpha1.ShardList
		if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK {
			t.Fatalf("%d, %v: %s", status, err, body)
		}
		return list
	}

	t.Run("the same content at the same versions", func(t *testing.T) {
		shardtesting.Eventually(t, "both lists", func(context.Context) error {
			atRoot := list(t, member(root, "system:kcp:admin"), "")
			for _, prefix := range []string{"", "/clusters/*"} {
				if own := list(t, atBeta, prefix); len(own.Items) != 3 || own.ResourceVersion != atRoot.ResourceVersion || fmt.Sprint(own.Items) != fmt.Sprint(atRoot.Items) {
					return fmt.Errorf("at the shard %+v, at root %+v", own, atRoot)
				}
			}
			return nil
		})
		if _, body := send(t, atBeta, http.MethodGet, view+"/apis/core.kcp.io/v1alpha1", ""); !strings.Contains(body, `"shards"`) {
			t.Errorf("discovery is %s", body)
		}
	})

	t.Run("members only", func(t *testing.T) {
		if status, body := send(t, member(shards["beta"]), http.MethodGet, view+shardsPath, ""); status != http.StatusForbidden || !strings.Contains(body, "system:kcp:admin or system:masters") {
			t.Errorf("%d: %s", status, body)
		}
		shard := ca.Client(t, shards["beta"].Masters(t), "system:kcp:shard:alpha", "system:kcp:shard")
		if status, body := send(t, shard, http.MethodGet, view+shardsPath, ""); status == http.StatusOK {
			t.Errorf("another shard: %d: %s", status, body)
		}
	})

	t.Run("nothing but the view", func(t *testing.T) {
		for _, path := range []string{view + "/apis/../../../clusters/root/api/v1/secrets", view + "/%2e%2e/%2e%2e/metrics"} {
			if status, body := send(t, atBeta, http.MethodGet, path, ""); status < 400 {
				t.Errorf("%s: %d: %s", path, status, body)
			}
		}
	})

	t.Run("policies of permission claims", func(t *testing.T) { testPolicies(t, root, shards["alpha"], shards["beta"], ca) })

	policies := newUnsyncedPolicies(t, root, shards["beta"]) // before its shard is cordoned
	cordon := `{"metadata":{"annotations":{"experimental.core.kcp.io/unschedulable":"true"}}}`
	t.Run("a watch sees a decision, which is about its own shard only", func(t *testing.T) {
		watch := watchShards(t, atBeta, list(t, atBeta, "").ResourceVersion)
		if status, body := send(t, atBeta, http.MethodPatch, view+shardsPath+"/alpha", cordon, "Content-Type", mergePatch); status != http.StatusForbidden || !strings.Contains(body, "only the root shard changes the Shards of others") {
			t.Errorf("another shard: %d: %s", status, body)
		}
		if status, body := send(t, atBeta, http.MethodPatch, view+shardsPath+"/beta", cordon, "Content-Type", mergePatch); status != http.StatusOK {
			t.Fatalf("%d: %s", status, body)
		}
		if status, body := send(t, atBeta, http.MethodPatch, view+shardsPath+"/beta", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch); status != http.StatusForbidden {
			t.Errorf("a label: %d: %s", status, body)
		}
		for watch.Scan() {
			if line := watch.Text(); strings.Contains(line, `"name":"beta"`) && strings.Contains(line, "unschedulable") {
				return
			}
		}
		t.Errorf("the watch ended: %v", watch.Err())
	})

	t.Run("the root shard is down", func(t *testing.T) {
		if err := root.Stop(); err != nil {
			t.Fatal(err)
		}
		if status, body := send(t, atBeta, http.MethodGet, view+shardsPath, ""); status != http.StatusServiceUnavailable || !strings.Contains(body, `"kind":"Status"`) {
			t.Errorf("%d: %s", status, body)
		}
	})
	t.Run("policies that a shard has not received", func(t *testing.T) { policies.test(t, restart["beta"]) })
}

// watchShards returns the lines of a watch.
func watchShards(t *testing.T, as *rest.Config, version string) *bufio.Scanner {
	t.Helper()
	client, err := rest.HTTPClientFor(as)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, as.Host+view+shardsPath+"?watch=true&resourceVersion="+version, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		response.Body.Close()
		client.CloseIdleConnections()
	})
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return lines
}

// kubeconfig writes a client configuration with a certificate in the form that a shard requires.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"root": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"shard": {ClientCertificate: config.CertFile, ClientKey: config.KeyFile}},
		Contexts:       map[string]*clientcmdapi.Context{"shard-base": {Cluster: "root", AuthInfo: "shard"}},
		CurrentContext: "shard-base",
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
