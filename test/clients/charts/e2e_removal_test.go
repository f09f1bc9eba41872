//go:build e2e

package charts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// objects are all objects of a cluster but events, as "<resource>.<group> <namespace>/<name>".
type objects map[string]bool

func listObjects(t *testing.T, kubeconfig string) objects {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists)
	resources, err := discovery.GroupVersionResources(lists)
	if err != nil {
		t.Fatal(err)
	}
	c, found := metadata.NewForConfigOrDie(config), objects{}
	for resource := range resources {
		if resource.Resource == "events" {
			continue
		}
		list, err := c.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // a definition that was deleted meanwhile
		}
		if err != nil {
			t.Fatalf("listing %s: %v", resource, err)
		}
		for _, item := range list.Items {
			found[fmt.Sprintf("%s %s/%s", resource.GroupResource(), item.Namespace, item.Name)] = true
		}
	}
	return found
}

// without returns the sorted objects that others do not have, and that are in a namespace if one is given.
func (o objects) without(others objects, namespace string) []string {
	var left []string
	for _, object := range slices.Sorted(maps.Keys(o)) {
		if !others[object] && (namespace == "" || strings.Contains(object, " "+namespace+"/")) {
			left = append(left, object)
		}
	}
	return left
}

// expectLeft waits until a namespace, or the cluster, has exactly these objects in addition to those before the test.
func (j *journey) expectLeft(t *testing.T, namespace string, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, 2*time.Minute, "removal of all other objects", func(context.Context) error {
		if left := listObjects(t, j.kcp.kubeconfig).without(j.before, namespace); !slices.Equal(left, want) {
			return fmt.Errorf("what is left is\n  %s\nwant\n  %s", strings.Join(left, "\n  "), strings.Join(want, "\n  "))
		}
		return nil
	})
}

// ofNamespace are the objects that every namespace has.
func ofNamespace(namespace string) []string {
	return []string{"configmaps " + namespace + "/kube-root-ca.crt", "serviceaccounts " + namespace + "/default"}
}

// confirmLoss confirms that the workspaces of the installation may be lost.
func (j *journey) confirmLoss(ctx context.Context, t *testing.T) {
	t.Helper()
	confirmation := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+operatorv1alpha1.AnnotationForceDelete+`":"true"}}}`))
	for _, object := range []client.Object{
		&operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "root"}},
		&operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "alpha"}},
	} {
		if err := j.kcp.Patch(ctx, object, confirmation); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			t.Errorf("confirming the deletion of %s: %v", object.GetName(), err)
		}
	}
}

func (j *journey) uninstallInstallation(t *testing.T) {
	j.kcp.uninstall(t, installedRelease)
	eventually(t, time.Minute, "a deletion that waits for workspaces", func(ctx context.Context) error {
		root := &operatorv1alpha1.RootShard{}
		if err := j.kcp.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "root"}, root); err != nil {
			return err
		}
		if gone := meta.FindStatusCondition(root.Status.Conditions, operatorv1alpha1.ConditionWorkspacesGone); gone == nil || gone.Reason != "HoldsWorkspaces" {
			return fmt.Errorf("%+v", gone)
		}
		return nil
	})
	j.confirmLoss(t.Context(), t)
	j.expectLeft(t, namespace, ofNamespace(namespace)...)
}

// uninstallInWrongOrder uninstalls the operator while a root shard has volumes and a finalizer. No data is deleted until an operator runs
// again, which then finishes the deletion.
func (j *journey) uninstallInWrongOrder(t *testing.T) {
	alone := j.installationValues(t)
	for _, key := range []string{"shards", "cacheServers"} {
		delete(alone, key)
	}
	alone["frontProxies"], alone["kubeconfigs"] = map[string]any{"frontproxy": nil}, map[string]any{"admin-kubeconfig": nil}
	alone["rootShard"].(map[string]any)["spec"].(map[string]any)["replicas"] = 1
	j.kcp.install(t, installedRelease, installationChart, alone)
	root := &operatorv1alpha1.RootShard{}
	eventually(t, 2*time.Minute, "a root shard that serves", func(ctx context.Context) error {
		if err := j.kcp.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "root"}, root); err != nil {
			return err
		}
		if len(root.Finalizers) == 0 {
			return fmt.Errorf("%+v", root.Status.Conditions)
		}
		return nil
	})
	j.operator.uninstall(t, operatorRelease)
	j.kcp.uninstall(t, installedRelease)
	if j.kcp.get(t, root, "root"); root.DeletionTimestamp == nil {
		t.Error("the root shard is not deleted")
	}
	claims := &corev1.PersistentVolumeClaimList{}
	if err := j.kcp.List(t.Context(), claims, client.InNamespace(namespace)); err != nil || len(claims.Items) != 1 || claims.Items[0].DeletionTimestamp != nil {
		t.Errorf("the volume of the etcd is deleted without an operator: %v, %v", claims.Items, err)
	}
	j.operator.install(t, operatorRelease, operatorChart, j.operatorValues(t))
	j.expectLeft(t, namespace, ofNamespace(namespace)...)
}

// uninstallOperator also removes the objects that the journey itself created, and the namespaces, which Helm keeps.
func (j *journey) uninstallOperator(t *testing.T) {
	j.operator.uninstall(t, operatorRelease)
	j.expectLeft(t, operatorNamespace, append(ofNamespace(operatorNamespace),
		"leases.coordination.k8s.io atoll-system/239f9f9a.operator.kcp.io", "secrets atoll-system/atoll-operator-metrics")...)
	for _, object := range j.own(t) {
		if err := j.kcp.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	// kube-apiserver serves a group of definitions with an APIService that it creates itself.
	definitions := []string{"apiservices.apiregistration.k8s.io /v1alpha1.operator.kcp.io"}
	for _, resource := range []string{"backups", "backupschedules", "backupstores", "cacheservers", "frontproxies", "kubeconfigs", "restoredrills", "restores", "rootshards", "shards", "virtualworkspaces"} {
		definitions = append(definitions, "customresourcedefinitions.apiextensions.k8s.io /"+resource+".operator.kcp.io")
	}
	j.expectLeft(t, "", definitions...)
}

// own are the objects that the test creates in addition to the charts.
func (j *journey) own(t *testing.T) []client.Object {
	return []client.Object{
		parse(t, issuer), parse(t, serviceMonitorDefinition),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}},
	}
}

// remove removes the objects of a failed test, and the definitions.
func (j *journey) remove(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, release := range []struct {
		in   *cluster
		name string
	}{{j.kcp, installedRelease}, {j.operator, operatorRelease}} {
		j.confirmLoss(ctx, t)
		uninstall := action.NewUninstall(release.in.config)
		uninstall.IgnoreNotFound, uninstall.WaitStrategy, uninstall.Timeout = true, release.in.wait, time.Minute
		if _, err := uninstall.Run(release.name); err != nil {
			t.Errorf("uninstalling release %s: %v", release.name, err)
		}
	}
	for _, object := range j.own(t) {
		if err := j.kcp.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			t.Errorf("removing %s: %v", object.GetName(), err)
		}
	}
	definitions := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := j.kcp.List(ctx, definitions); err != nil {
		t.Error(err)
	}
	for i := range definitions.Items {
		if definitions.Items[i].Spec.Group != operatorv1alpha1.SchemeGroupVersion.Group {
			continue
		}
		if err := j.kcp.Delete(ctx, &definitions.Items[i]); client.IgnoreNotFound(err) != nil {
			t.Errorf("removing %s: %v", definitions.Items[i].Name, err)
		}
	}
}
