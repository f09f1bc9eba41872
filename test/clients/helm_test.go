package clients

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/test/installation"
)

const releaseName = "old-town"

// chartEnv is a chart in a workspace.
type chartEnv struct {
	*testing.T
	config *action.Configuration
	chart  chart.Charter
	client client.Client
}

// testHelm installs, upgrades, rolls back and uninstalls a chart with a definition, its objects, RBAC and a hook.
func testHelm(t *testing.T, i *installation.Installation) {
	config := i.NewWorkspace(t, "orchards", "farmer")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	installation.WriteKubeconfig(t, config, kubeconfig)
	flags := genericclioptions.NewConfigFlags(false)
	namespace := "orchard"
	flags.KubeConfig, flags.Namespace = &kubeconfig, &namespace
	o := &chartEnv{T: t, config: action.NewConfiguration()}
	var err error
	if err = o.config.Init(flags, namespace, "secrets"); err != nil {
		t.Fatal(err)
	}
	if o.chart, err = loader.Load(filepath.Join("testdata", "chart")); err != nil {
		t.Fatal(err)
	}
	if o.client, err = client.New(config, client.Options{}); err != nil {
		t.Fatal(err)
	}

	install := action.NewInstall(o.config)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy, install.Timeout = releaseName, namespace, true, kube.StatusWatcherStrategy, timeout
	o.mustRelease(install.Run(o.chart, map[string]any{}))
	o.expectObjects("apple", 3)

	upgrade := action.NewUpgrade(o.config)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout = namespace, kube.StatusWatcherStrategy, timeout
	o.mustRelease(upgrade.Run(releaseName, o.chart, map[string]any{"fruit": "pear", "trees": 2}))
	o.expectObjects("pear", 2)
	hook := &corev1.ConfigMap{}
	if err := o.get(hook, "before-upgrade"); err != nil || hook.Data["revision"] != "2" {
		t.Errorf("the hook before the upgrade left %v: %v", hook.Data, err)
	}

	// A value that the schema refuses fails the upgrade. Helm keeps the changes applied before the failure; the
	// rollback reverts them.
	if _, err := upgrade.Run(releaseName, o.chart, map[string]any{"fruit": "stone"}); err == nil || !strings.Contains(err.Error(), "Unsupported value") {
		t.Errorf("an upgrade with an invalid value: %v", err)
	}

	rollback := action.NewRollback(o.config)
	rollback.Version, rollback.WaitStrategy, rollback.Timeout = 1, kube.StatusWatcherStrategy, timeout
	if err := rollback.Run(releaseName); err != nil {
		t.Fatalf("rolling back: %v", err)
	}
	o.expectObjects("apple", 3)
	history, err := action.NewHistory(o.config).Run(releaseName)
	if err != nil || len(history) != 4 {
		t.Fatalf("history of %d revisions: %v", len(history), err)
	}
	if last, err := release.NewAccessor(history[len(history)-1]); err != nil || last.Status() != "deployed" {
		t.Errorf("the last revision: %v, %v", last, err)
	}

	uninstall := action.NewUninstall(o.config)
	uninstall.WaitStrategy, uninstall.Timeout = kube.StatusWatcherStrategy, timeout
	if _, err := uninstall.Run(releaseName); err != nil {
		t.Fatalf("uninstalling: %v", err)
	}
	for name, object := range map[string]client.Object{"plan": &corev1.ConfigMap{}, "gate": &corev1.Secret{}, "keeper": &corev1.ServiceAccount{}, "0": newTree()} {
		if err := o.get(object, name); !apierrors.IsNotFound(err) {
			t.Errorf("after the uninstallation, %T %s: %v", object, name, err)
		}
	}
}

func (c *chartEnv) mustRelease(_ release.Releaser, err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *chartEnv) get(object client.Object, name string) error {
	return c.client.Get(c.Context(), client.ObjectKey{Namespace: "orchard", Name: releaseName + "-" + name}, object)
}

func newTree() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "orchard.example.org", Version: "v1", Kind: "Tree"})
	return object
}

// expectObjects checks the release's objects.
func (c *chartEnv) expectObjects(fruit string, trees int) {
	c.Helper()
	plan := &corev1.ConfigMap{}
	if err := c.get(plan, "plan"); err != nil || plan.Data["fruit"] != fruit {
		c.Errorf("the plan is %v: %v", plan.Data, err)
	}
	for n := range trees {
		object := newTree()
		if err := c.get(object, fmt.Sprint(n)); err != nil {
			c.Errorf("tree %d: %v", n, err)
			continue
		}
		if got, _, _ := unstructured.NestedString(object.Object, "spec", "fruit"); got != fruit {
			c.Errorf("tree %d has fruit %q, want %q", n, got, fruit)
		}
	}
	if err := c.get(newTree(), fmt.Sprint(trees)); !apierrors.IsNotFound(err) {
		c.Errorf("tree %d should not exist: %v", trees, err)
	}
}
