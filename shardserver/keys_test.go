package shardserver_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/atoll-dev/atoll/internal/etcdowner"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// etcdPrefix is the default of --etcd-prefix.
const etcdPrefix = "/registry"

// upstreamKeys are keys of upstream libraries, outside of the layout.
var upstreamKeys = map[string]bool{"compact_rev_key": true}

// TestKeys checks the keys in etcd against the contract's layout: migration, backups and other versions depend on it.
func TestKeys(t *testing.T) {
	shard := shardtesting.Start(t)
	workspace := shard.NewWorkspace(t, "root", "keys")
	config := shardtesting.At(shard.Admin(t), workspace.Spec.Cluster)
	_, err := shard.Kubernetes(t, config).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("of one object of every kind", func(t *testing.T) { testKeysByKind(t, shard, workspace.Spec.Cluster) })
	t.Run("of the contract's examples", func(t *testing.T) {
		for _, want := range []string{
			"/registry/core/configmaps/root/default/kube-root-ca.crt",
			"/registry/tenancy.kcp.io/workspaces/" + getIdentity(t, shard, "tenancy.kcp.io") + "/root/keys",
			"/registry/core.kcp.io/shards/" + getIdentity(t, shard, "shards.core.kcp.io") + "/root/root",
			"/registry/core.kcp.io/logicalclusters/customresources/" + workspace.Spec.Cluster + "/cluster",
			"/registry/core.kcp.io/logicalclusters/customresources/root/cluster",
			"/registry/rbac.authorization.k8s.io/clusterroles/system:admin/cluster-admin",
		} {
			if keys := shard.Keys(t, want); len(keys) != 1 || keys[0] != want {
				t.Errorf("want %s, got %v", want, keys)
			}
		}
	})
	t.Run("all keys follow the layout, and all values have their logical cluster", func(t *testing.T) { testKeyLayout(t, shard) })
}

func getIdentity(t *testing.T, shard *shardtesting.Shard, export string) string {
	t.Helper()
	secret, err := shard.Kubernetes(t, shardtesting.At(shard.Masters(t), "root")).CoreV1().Secrets("kcp-system").Get(t.Context(), export, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(secret.Data["key"])
	return hex.EncodeToString(sum[:])
}

func testKeysByKind(t *testing.T, shard *shardtesting.Shard, cluster string) {
	tenancy := getIdentity(t, shard, "tenancy.kcp.io")
	client := dynamic.NewForConfigOrDie(shardtesting.At(shard.Admin(t), cluster))
	for resource, want := range map[schema.GroupVersionResource]string{
		{Version: "v1", Resource: "namespaces"}:                                                           "core/namespaces/CLUSTER/x",
		{Version: "v1", Resource: "configmaps"}:                                                           "core/configmaps/CLUSTER/ns/x",
		{Version: "v1", Resource: "secrets"}:                                                              "core/secrets/CLUSTER/ns/x",
		{Version: "v1", Resource: "serviceaccounts"}:                                                      "core/serviceaccounts/CLUSTER/ns/x",
		{Version: "v1", Resource: "events"}:                                                               "core/events/CLUSTER/ns/x",
		{Group: "events.k8s.io", Version: "v1", Resource: "events"}:                                       "core/events/CLUSTER/ns/x-too",
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}:                                 "coordination.k8s.io/leases/CLUSTER/ns/x",
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}:                            "rbac.authorization.k8s.io/roles/CLUSTER/ns/x",
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}:                     "rbac.authorization.k8s.io/rolebindings/CLUSTER/ns/x",
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}:                     "rbac.authorization.k8s.io/clusterroles/CLUSTER/x",
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}:              "rbac.authorization.k8s.io/clusterrolebindings/CLUSTER/x",
		{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}:                            "tenancy.kcp.io/workspaces/" + tenancy + "/CLUSTER/x",
		{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaceauthenticationconfigurations"}: "tenancy.kcp.io/workspaceauthenticationconfigurations/" + tenancy + "/CLUSTER/x",
		{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspacetypes"}:                        "tenancy.kcp.io/workspacetypes/" + tenancy + "/CLUSTER/x",
	} {
		stored := resource.GroupResource()
		if stored.Resource == "events" {
			stored.Group = "" // both groups show the same objects
		}
		known, err := shard.Server.Registry.Get(stored)
		if err != nil {
			t.Fatal(err)
		}
		want = etcdPrefix + "/" + strings.Replace(want, "CLUSTER", cluster, 1)
		name, namespace := want[strings.LastIndex(want, "/")+1:], ""
		if known.Namespaced {
			namespace = "ns"
		}
		gvk := resource.GroupVersion().WithKind(known.Kind.Kind)
		obj := kindTests[resource.GroupResource()].object(gvk, namespace, name)
		if _, err := client.Resource(resource).Namespace(namespace).Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Errorf("%s: %v", resource, err)
			continue
		}
		value, ok := shard.Stored(t)[want]
		if !ok {
			t.Errorf("%s: no key %s", resource, want)
			continue
		}
		if stored, custom := bytes.HasPrefix(value, []byte("k8s\x00")), strings.HasSuffix(resource.Group, ".kcp.io"); stored == custom {
			t.Errorf("%s is stored as %.20q", resource, value)
		}
	}
}

func testKeyLayout(t *testing.T, shard *shardtesting.Shard) {
	stored := shard.Stored(t)
	for key, value := range stored {
		if upstreamKeys[key] || strings.HasPrefix(key, "/cache/") || strings.HasPrefix(key, etcdPrefix+"/~elsewhere") {
			continue // those of the embedded cache server, and replicas of other shards, are outside of the shard's own
		}
		if key == etcdowner.Key(etcdPrefix) {
			if string(value) != "root" {
				t.Errorf("the keys belong to %q", value)
			}
			continue
		}
		cluster, namespace, name, err := parseKey(shard, key)
		if err != nil {
			t.Error(err)
			continue
		}
		obj, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		object, err := meta.Accessor(obj)
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if object.GetAnnotations()["kcp.io/cluster"] != cluster || object.GetNamespace() != namespace || object.GetName() != name {
			t.Errorf("%s contains %s/%s of cluster %q", key, object.GetNamespace(), object.GetName(), object.GetAnnotations()["kcp.io/cluster"])
		}
	}
	if len(stored) < 100 {
		t.Errorf("only %d keys: the test does not read the keys of the shard", len(stored))
	}
}

// parseKey splits a key by the resource that it belongs to.
func parseKey(shard *shardtesting.Shard, key string) (cluster, namespace, name string, err error) {
	for _, resource := range shard.Server.Registry.All() {
		rest, ok := strings.CutPrefix(key, etcdPrefix+resource.Prefix+"/")
		if !ok {
			continue
		}
		segments := strings.Split(rest, "/")
		switch {
		case resource.Namespaced && len(segments) == 3:
			return segments[0], segments[1], segments[2], nil
		case !resource.Namespaced && len(segments) == 2:
			return segments[0], "", segments[1], nil
		}
		return "", "", "", fmt.Errorf("%s has %d segments behind the prefix of %s", key, len(segments), resource.GVR)
	}
	return "", "", "", fmt.Errorf("%s belongs to no resource", key)
}
