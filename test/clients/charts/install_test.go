package charts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/programs"
)

const (
	namespace = "kcp"
	timeout   = time.Minute
)

// cluster is a Kubernetes cluster with Helm's configuration for one of its namespaces.
type cluster struct {
	client.Client
	kubeconfig string
	namespace  string
	config     *action.Configuration
	wait       kube.WaitStrategy
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
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	installation.WriteKubeconfig(t, server.Config, kubeconfig)
	c := connect(t, kubeconfig)
	// kube-apiserver is built without a version, which the charts require.
	c.config.Capabilities = common.DefaultCapabilities.Copy()
	c.config.Capabilities.KubeVersion = common.KubeVersion{Version: "v1.37.2", Major: "1", Minor: "37"}
	return c
}

// connect returns the cluster of a kubeconfig, with the namespace of installations. Helm waits for nothing.
func connect(t *testing.T, kubeconfig string) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, operatorv1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c := &cluster{kubeconfig: kubeconfig, wait: kube.HookOnlyStrategy}
	if c.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return c.in(t, namespace)
}

// in returns the cluster with another namespace.
func (c *cluster) in(t *testing.T, namespace string) *cluster {
	t.Helper()
	other := *c
	other.namespace, other.config = namespace, action.NewConfiguration()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &other.kubeconfig, &other.namespace
	if err := other.config.Init(flags, namespace, "secrets"); err != nil {
		t.Fatal(err)
	}
	return &other
}

func (c *cluster) install(t *testing.T, name, directory string, values map[string]any, options ...func(*action.Install)) {
	t.Helper()
	if err := c.tryInstall(t, name, directory, values, options...); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) tryInstall(t *testing.T, name, directory string, values map[string]any, options ...func(*action.Install)) error {
	t.Helper()
	install := action.NewInstall(c.config)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy, install.Timeout = name, c.namespace, true, c.wait, timeout
	for _, set := range options {
		set(install)
	}
	_, err := install.Run(load(t, directory), values)
	return err
}

func (c *cluster) upgrade(t *testing.T, name, directory string, values map[string]any, options ...func(*action.Upgrade)) {
	t.Helper()
	if err := c.tryUpgrade(t, name, directory, values, options...); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) tryUpgrade(t *testing.T, name, directory string, values map[string]any, options ...func(*action.Upgrade)) error {
	t.Helper()
	upgrade := action.NewUpgrade(c.config)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout = c.namespace, c.wait, timeout
	for _, set := range options {
		set(upgrade)
	}
	_, err := upgrade.Run(name, load(t, directory), values)
	return err
}

func (c *cluster) uninstall(t *testing.T, name string) {
	t.Helper()
	uninstall := action.NewUninstall(c.config)
	uninstall.WaitStrategy, uninstall.Timeout = c.wait, timeout
	if _, err := uninstall.Run(name); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) get(t *testing.T, object client.Object, name string) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}
}

// TestInstall installs, upgrades and removes both charts on a stock kube-apiserver, which has no controllers: it shows that the API
// server accepts the rendered objects, and which objects remain.
func TestInstall(t *testing.T) {
	c := newCluster(t)
	c.installOverDefinition(t)
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

	for _, elects := range []bool{false, true} {
		c.upgrade(t, "atoll-operator", operatorChart, map[string]any{"leaderElection": map[string]any{"enabled": elects}})
		if c.get(t, deployment, "atoll-operator"); (deployment.Spec.Strategy.RollingUpdate.MaxSurge.String() == "0") == elects {
			t.Errorf("with leaderElection %v, the strategy is %v", elects, deployment.Spec.Strategy.RollingUpdate)
		}
	}

	c.uninstall(t, "kcp")
	c.uninstall(t, "atoll-operator")
	c.expectOnlyDefinitions(t)

	// Definitions that were kept belong to the next release.
	c.install(t, "atoll-operator", operatorChart, map[string]any{})
	c.get(t, deployment, "atoll-operator")
	c.uninstallWithDefinitions(t)
	c.installAgents(t)
}

// installAgents installs two agents, of which one has the definition, and uninstalls both.
func (c *cluster) installAgents(t *testing.T) {
	t.Helper()
	second := map[string]any{"apiExportEndpointSliceName": "databases", "kcpKubeconfig": "kcp", "crds": map[string]any{"enabled": false}}
	c.install(t, "certs", syncAgentChart, values(t, "sync-agent-small"))
	c.install(t, "databases", syncAgentChart, second)
	deployment, role := &appsv1.Deployment{}, &rbacv1.ClusterRole{}
	for _, name := range []string{"certs-atoll-sync-agent", "databases-atoll-sync-agent"} {
		c.get(t, deployment, name)
		if err := c.Get(t.Context(), client.ObjectKey{Name: namespace + ":" + name}, role); err != nil || len(role.Rules) == 0 {
			t.Errorf("role of %s: %v", name, err)
		}
	}
	second["rbac"] = map[string]any{"rules": []any{map[string]any{"apiGroups": []any{"example.org"}, "resources": []any{"databases"}, "verbs": []any{"get"}}}}
	c.upgrade(t, "databases", syncAgentChart, second)
	if err := c.Get(t.Context(), client.ObjectKey{Name: namespace + ":databases-atoll-sync-agent"}, role); err != nil || role.Rules[len(role.Rules)-1].Resources[0] != "databases" {
		t.Errorf("after the upgrade, the role has rules %v (%v)", role.Rules, err)
	}
	c.uninstall(t, "certs")
	c.uninstall(t, "databases")
	if err := c.Get(t.Context(), client.ObjectKey{Name: "publishedresources.syncagent.kcp.io"}, &apiextensionsv1.CustomResourceDefinition{}); err != nil {
		t.Errorf("the definition is not kept: %v", err)
	}
}

// uninstallWithDefinitions uninstalls an operator with its definitions while an installation exists. Objects that an operator has to
// finalize remain until one without definitions is installed.
func (c *cluster) uninstallWithDefinitions(t *testing.T) {
	t.Helper()
	c.install(t, "kcp", installationChart, values(t, "installation"))
	root := &operatorv1alpha1.RootShard{}
	c.get(t, root, "main")
	root.Finalizers = []string{operatorv1alpha1.FinalizerRootShard}
	if err := c.Update(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	c.upgrade(t, "atoll-operator", operatorChart, map[string]any{"crds": map[string]any{"keep": false}})
	c.uninstall(t, "atoll-operator")
	shardtesting.Eventually(t, "the root shard is deleted", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(root), root); err != nil {
			t.Fatalf("the root shard, which has a finalizer: %v", err)
		}
		if root.DeletionTimestamp == nil {
			return errors.New("it is not")
		}
		return nil
	})
	c.install(t, "atoll-operator", operatorChart, map[string]any{"crds": map[string]any{"create": false}})
	root.Finalizers = nil
	if err := c.Update(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "all definitions are deleted", func(ctx context.Context) error {
		definitions := &apiextensionsv1.CustomResourceDefinitionList{}
		if err := c.List(ctx, definitions); err != nil || len(definitions.Items) > 0 {
			return fmt.Errorf("%d are left (%v)", len(definitions.Items), err)
		}
		return nil
	})
}

// installOverDefinition installs the operator where another user has installed a definition of another version.
func (c *cluster) installOverDefinition(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(operatorChart, "files/crds/operator.kcp.io_rootshards.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, definition); err != nil {
		t.Fatal(err)
	}
	columns := definition.Spec.Versions[0].AdditionalPrinterColumns
	definition.Spec.Versions[0].AdditionalPrinterColumns = nil
	if err := c.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	if err := c.tryInstall(t, "atoll-operator", operatorChart, map[string]any{}); err == nil || !strings.Contains(err.Error(), "ownership") {
		t.Errorf("install over a definition of somebody else: %v", err)
	}
	c.install(t, "atoll-operator", operatorChart, map[string]any{}, func(install *action.Install) {
		install.TakeOwnership, install.ForceConflicts = true, true
	})
	if c.get(t, definition, definition.Name); !equality.Semantic.DeepEqual(definition.Spec.Versions[0].AdditionalPrinterColumns, columns) {
		t.Error("the definition is not that of the chart")
	}
}

// expectOnlyDefinitions checks that only definitions remain of both releases.
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
	definitions, err := filepath.Glob("../../../config/crd/bases/*.yaml")
	if err != nil || len(definitions) == 0 {
		t.Fatalf("found no definitions of the operator: %v", err)
	}
	if count := c.count(t.Context(), t, &apiextensionsv1.CustomResourceDefinitionList{}, ours); count != len(definitions) {
		t.Errorf("%d definitions are left, want %d", count, len(definitions))
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
