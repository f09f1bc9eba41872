package charts

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/programs"
)

const (
	namespace = "kcp"
	timeout   = time.Minute
)

// cluster is a stock kube-apiserver with Helm's configuration for it.
type cluster struct {
	client.Client
	config *action.Configuration
}

func newCluster(t *testing.T) *cluster {
	bin, root := t.TempDir(), "../../.."
	if err := programs.Build(t.Context(), root, bin, "./cmd/etcd"); err != nil {
		t.Fatal(err)
	}
	if err := programs.Build(t.Context(), filepath.Join(root, "hack", "devcluster"), bin, "k8s.io/kubernetes/cmd/kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	server := kubeapiserver.Start(t, bin)
	server.WaitReady(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, operatorv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{config: action.NewConfiguration()}
	var err error
	if c.Client, err = client.New(server.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	installation.WriteKubeconfig(t, server.Config, kubeconfig)
	flags, ns := genericclioptions.NewConfigFlags(false), namespace
	flags.KubeConfig, flags.Namespace = &kubeconfig, &ns
	if err := c.config.Init(flags, namespace, "secrets"); err != nil {
		t.Fatal(err)
	}
	// kube-apiserver is built without a version, which the charts require.
	c.config.Capabilities = common.DefaultCapabilities.Copy()
	c.config.Capabilities.KubeVersion = common.KubeVersion{Version: "v1.37.2", Major: "1", Minor: "37"}
	return c
}

func (c *cluster) install(t *testing.T, name, directory string, values map[string]any) {
	t.Helper()
	install := action.NewInstall(c.config)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy, install.Timeout = name, namespace, true, kube.HookOnlyStrategy, timeout
	if _, err := install.Run(load(t, directory), values); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) upgrade(t *testing.T, name, directory string, values map[string]any) {
	t.Helper()
	upgrade := action.NewUpgrade(c.config)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout = namespace, kube.HookOnlyStrategy, timeout
	if _, err := upgrade.Run(name, load(t, directory), values); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) uninstall(t *testing.T, name string) {
	t.Helper()
	uninstall := action.NewUninstall(c.config)
	uninstall.WaitStrategy, uninstall.Timeout = kube.HookOnlyStrategy, timeout
	if _, err := uninstall.Run(name); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) get(t *testing.T, object client.Object, name string) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}
}

// TestInstall installs, upgrades and removes both charts on a stock kube-apiserver, which has no controllers: it shows that the API
// server accepts what the charts render, and what is left.
func TestInstall(t *testing.T) {
	c := newCluster(t)
	c.install(t, "atoll-operator", operatorChart, map[string]any{})
	deployment := &appsv1.Deployment{}
	c.get(t, deployment, "atoll-operator")

	c.install(t, "kcp", installationChart, values(t, "installation"))
	shard := &operatorv1alpha1.Shard{}
	c.get(t, shard, "alpha")

	changed := values(t, "installation")
	changed["shards"] = map[string]any{"alpha": map[string]any{"replicas": 3}}
	c.upgrade(t, "kcp", installationChart, changed)
	if c.get(t, shard, "alpha"); shard.Spec.Replicas == nil || *shard.Spec.Replicas != 3 {
		t.Errorf("after the upgrade, shard alpha has %v replicas", shard.Spec.Replicas)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "beta"}, shard); !apierrors.IsNotFound(err) {
		t.Errorf("shard beta, which the values do not have any more: %v", err)
	}
	c.upgrade(t, "atoll-operator", operatorChart, map[string]any{"replicaCount": 2})
	if c.get(t, deployment, "atoll-operator"); *deployment.Spec.Replicas != 2 {
		t.Errorf("after the upgrade, the operator has %d replicas", *deployment.Spec.Replicas)
	}

	c.uninstall(t, "kcp")
	c.uninstall(t, "atoll-operator")
	c.expectOnlyDefinitions(t)

	// Definitions that were kept belong to the next release.
	c.install(t, "atoll-operator", operatorChart, map[string]any{})
	c.get(t, deployment, "atoll-operator")
}

// expectOnlyDefinitions checks that nothing but definitions is left of both releases.
func (c *cluster) expectOnlyDefinitions(t *testing.T) {
	t.Helper()
	ours := client.MatchingLabels{"app.kubernetes.io/managed-by": "Helm"}
	for _, list := range []client.ObjectList{
		&appsv1.DeploymentList{}, &corev1.ServiceAccountList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
		&operatorv1alpha1.RootShardList{}, &operatorv1alpha1.ShardList{}, &operatorv1alpha1.CacheServerList{}, &operatorv1alpha1.FrontProxyList{},
		&operatorv1alpha1.VirtualWorkspaceList{}, &operatorv1alpha1.KubeconfigList{},
	} {
		if count := c.count(t.Context(), t, list, ours); count > 0 {
			t.Errorf("%d of %T are left", count, list)
		}
	}
	if count := c.count(t.Context(), t, &apiextensionsv1.CustomResourceDefinitionList{}, ours); count != 6 {
		t.Errorf("%d definitions are left, want 6", count)
	}
}

func (c *cluster) count(ctx context.Context, t *testing.T, list client.ObjectList, options ...client.ListOption) int {
	t.Helper()
	partial := &metav1.PartialObjectMetadataList{}
	gvk, err := c.GroupVersionKindFor(list)
	if err != nil {
		t.Fatal(err)
	}
	partial.SetGroupVersionKind(gvk)
	if err := c.List(ctx, partial, options...); err != nil {
		t.Fatal(err)
	}
	return len(partial.Items)
}
