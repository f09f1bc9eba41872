package kubeconfig

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/status"
)

func TestFindTarget(t *testing.T) {
	ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "kcp"} }
	rootShardRef := func(root string) operatorv1alpha1.RootShardReference {
		return operatorv1alpha1.RootShardReference{Reference: ref(root)}
	}
	external := operatorv1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}
	c := apply.Cluster{Client: memory.NewClient(t,
		&operatorv1alpha1.RootShard{ObjectMeta: meta("root"), Spec: operatorv1alpha1.RootShardSpec{External: external}},
		&operatorv1alpha1.Shard{ObjectMeta: meta("alpha"), Spec: operatorv1alpha1.ShardSpec{RootShard: rootShardRef("root")}},
		&operatorv1alpha1.Shard{ObjectMeta: meta("without-root")},
		&operatorv1alpha1.Shard{ObjectMeta: meta("of-one-that-is-gone"), Spec: operatorv1alpha1.ShardSpec{RootShard: rootShardRef("gone")}},
		&operatorv1alpha1.FrontProxy{ObjectMeta: meta("front"), Spec: operatorv1alpha1.FrontProxySpec{RootShard: rootShardRef("root")}},
	)}
	type target = operatorv1alpha1.KubeconfigTarget
	for name, tc := range map[string]struct {
		target     target
		name, url  string // of what is found
		complaint  string // else
		shardBased bool
	}{
		"a root shard":                    {target{RootShardRef: ref("root")}, "RootShard/root", "https://root-kcp.kcp.svc.cluster.local:6443", "", true},
		"a shard":                         {target{ShardRef: ref("alpha")}, "Shard/alpha", "https://alpha-shard-kcp.kcp.svc.cluster.local:6443", "", true},
		"a front proxy":                   {target{FrontProxyRef: ref("front")}, "FrontProxy/front", "https://kcp.example.com:443", "", false},
		"the first of several":            {target{RootShardRef: ref("root"), ShardRef: ref("alpha"), FrontProxyRef: ref("front")}, "RootShard/root", "https://root-kcp.kcp.svc.cluster.local:6443", "", true},
		"a shard that does not exist":     {target{ShardRef: ref("beta")}, "", "", "Shard beta does not exist in namespace kcp: create it, or correct target.shardRef", false},
		"a shard of no installation":      {target{ShardRef: ref("without-root")}, "", "", "Shard without-root names no RootShard: set its rootShard.ref.name", false},
		"a shard of an installation gone": {target{ShardRef: ref("of-one-that-is-gone")}, "", "", "RootShard gone, which Shard of-one-that-is-gone names, does not exist", false},
		"nothing at all":                  {target{}, "", "", "target names nothing", false},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig := &operatorv1alpha1.Kubeconfig{ObjectMeta: meta("k"), Spec: operatorv1alpha1.KubeconfigSpec{Target: tc.target}}
			found, result, err := findTarget(t.Context(), c, kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(result.Message, tc.complaint) || (found == nil) != (tc.complaint != "") {
				t.Fatalf("got %+v", result)
			}
			if found == nil {
				return
			}
			if found.name != tc.name || found.url != tc.url || found.isShard != tc.shardBased || found.operatorURL != "https://root-proxy.kcp.svc.cluster.local:6443" {
				t.Errorf("got %+v", found)
			}
		})
	}
}

// TestInstallationOfUnknownKeys: bindings can be deleted before the keys of the installation are known, and new certificates wait.
func TestInstallationOfUnknownKeys(t *testing.T) {
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
	root.Spec.Certificates.Rekey = []operatorv1alpha1.CertificateRekey{{CA: operatorv1alpha1.ClientCA, Generation: 2}}
	kubeconfig := &operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "admin", Namespace: "kcp"}}
	kubeconfig.Spec.Target.RootShardRef = &corev1.LocalObjectReference{Name: "root"}
	c := apply.Cluster{Client: memory.NewClient(t, root)}
	if found, result, err := findTarget(t.Context(), c, kubeconfig); found != nil || result.State != status.Waiting || err != nil {
		t.Errorf("got %+v, %+v, %v", found, result, err)
	}
	if found, err := findInstallation(t.Context(), c, kubeconfig); found == nil || err != nil {
		t.Errorf("got no installation: %v", err)
	}
}
