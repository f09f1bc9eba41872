//go:build e2e

package charts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

const (
	operatorNamespace = "atoll-system"
	operatorRelease   = "atoll-operator"
	installedRelease  = "kcp"
)

// journey follows docs/helm.md, from a bare cluster to one that has only the definitions.
type journey struct {
	operator, kcp *cluster // in their namespaces
	before        objects
	address       string              // of the front proxy
	work          map[string]*traffic // by shard
}

// TestOnCluster runs both charts on a cluster with pods, volumes and cert-manager, and without the operator. hack/e2e.sh provides one.
func TestOnCluster(t *testing.T) {
	kubeconfig := os.Getenv("E2E_KUBECONFIG")
	if kubeconfig == "" || os.Getenv("E2E_IMAGE") == "" {
		t.Fatal("E2E_KUBECONFIG and E2E_IMAGE are not set: hack/e2e.sh sets them and brings a cluster")
	}
	log.SetLogger(klog.Background())
	j := &journey{kcp: connect(t, kubeconfig)}
	j.operator = j.kcp.in(t, operatorNamespace)
	j.operator.wait = kube.StatusWatcherStrategy
	if err := j.kcp.Get(t.Context(), client.ObjectKey{Name: "rootshards.operator.kcp.io"}, &apiextensionsv1.CustomResourceDefinition{}); !apierrors.IsNotFound(err) {
		t.Skipf("the cluster has the definitions of an operator already (%v), which this test would remove", err)
	}
	j.address = freeAddress(t, j.kcp)
	j.before = listObjects(t, kubeconfig)
	t.Cleanup(func() { j.remove(t) })
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a values file of kcp-operator installs the operator", j.installOperator},
		{"one values file makes an installation", j.installInstallation},
		{"workspaces on both shards", j.useWorkspaces},
		{"values turn on metrics, a budget and network policies, and an upgrade restores definitions", j.upgradeOperator},
		{"a new image rolls out while workspaces are used", j.upgradeInstallation},
		{"a rollback of each", j.rollBack},
		{"the installation is uninstalled once the loss of its workspaces is confirmed", j.uninstallInstallation},
		{"an installation that was uninstalled after its operator waits for the next one", j.uninstallInWrongOrder},
		{"nothing but definitions is left", j.uninstallOperator},
	} {
		if !t.Run(step.name, step.run) {
			j.dump(t)
			t.FailNow()
		}
	}
}

// eventually polls until attempt returns nil, and fails with its last error.
func eventually(t *testing.T, limit time.Duration, what string, attempt func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 250*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		if err := attempt(ctx); err == nil || ctx.Err() == nil {
			last = err
		}
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s did not happen within %s: %v", what, limit, last)
	}
}

// image returns the values of the image in an environment variable.
func image(t *testing.T, variable string) map[string]any {
	t.Helper()
	name := os.Getenv(variable)
	colon := strings.LastIndex(name, ":")
	if colon < 0 {
		t.Skipf("%s is not set to repository:tag", variable)
	}
	return map[string]any{"repository": name[:colon], "tag": name[colon+1:]}
}

func (j *journey) operatorValues(t *testing.T) map[string]any {
	t.Helper()
	read := values(t, "e2e-operator")
	read["image"] = image(t, "E2E_IMAGE")
	return read
}

func (j *journey) installOperator(t *testing.T) {
	j.operator.install(t, operatorRelease, operatorChart, j.operatorValues(t))
	pods := &corev1.PodList{}
	if err := j.operator.List(t.Context(), pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"team": "platform"}); err != nil || len(pods.Items) != 1 {
		t.Errorf("%d pods have the label of podLabels, want 1 (%v)", len(pods.Items), err)
	}
}

// installationValues are those of the file, at the address of the front proxy.
func (j *journey) installationValues(t *testing.T) map[string]any {
	t.Helper()
	read := values(t, "e2e-installation")
	read["externalHostname"] = j.address
	proxy := read["frontProxies"].(map[string]any)["frontproxy"].(map[string]any)
	proxy["serviceTemplate"] = map[string]any{"spec": map[string]any{"clusterIP": j.address}}
	proxy["certificateTemplates"] = map[string]any{"server": map[string]any{"spec": map[string]any{"ipAddresses": []any{j.address}}}}
	return read
}

const issuer = `{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: atoll-charts}, spec: {selfSigned: {}}}`

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	parsed := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &parsed.Object); err != nil {
		t.Fatal(err)
	}
	return parsed
}

func (j *journey) installInstallation(t *testing.T) {
	if err := j.kcp.Create(t.Context(), parse(t, issuer)); err != nil {
		t.Fatal(err)
	}
	j.kcp.install(t, installedRelease, installationChart, j.installationValues(t))
	j.waitReady(t)
}

// waitReady waits for condition Ready of all objects of the installation at their generation.
func (j *journey) waitReady(t *testing.T) {
	t.Helper()
	started := time.Now()
	eventually(t, 5*time.Minute, "readiness of the installation", func(ctx context.Context) error {
		var missing []error
		for _, kind := range []string{"RootShard", "Shard", "CacheServer", "FrontProxy", "Kubeconfig"} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind + "List"))
			if err := j.kcp.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return err
			}
			if len(list.Items) == 0 {
				return fmt.Errorf("there is no %s", kind)
			}
			for i := range list.Items {
				missing = append(missing, checkReady(&list.Items[i]))
			}
		}
		return errors.Join(missing...)
	})
	t.Logf("Ready after %.0fs", time.Since(started).Seconds())
}

func checkReady(object *unstructured.Unstructured) error {
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, &status); err != nil {
		return err
	}
	ready := meta.FindStatusCondition(status.Status.Conditions, operatorv1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != object.GetGeneration() {
		return fmt.Errorf("%s %s at generation %d: %+v", object.GetKind(), object.GetName(), object.GetGeneration(), ready)
	}
	return nil
}

const serviceMonitorDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {plural: servicemonitors, singular: servicemonitor, kind: ServiceMonitor, listKind: ServiceMonitorList}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// upgradeOperator enables what is off by default. A definition that another user has edited is a conflict that Helm names; Helm restores
// the definition on request.
func (j *journey) upgradeOperator(t *testing.T) {
	with := j.operatorValues(t)
	with["replicaCount"] = 2
	with["podDisruptionBudget"] = map[string]any{"enabled": true}
	with["networkPolicy"] = map[string]any{"enabled": true}
	with["metrics"] = map[string]any{
		"enabled": true, "reader": map[string]any{"name": "default", "namespace": operatorNamespace}, "serviceMonitor": map[string]any{"enabled": true},
	}
	if err := j.operator.tryUpgrade(t, operatorRelease, operatorChart, with); err == nil || !strings.Contains(err.Error(), "ServiceMonitor") {
		t.Errorf("a ServiceMonitor without its definition: %v", err)
	}
	if err := j.operator.Create(t.Context(), parse(t, serviceMonitorDefinition)); err != nil {
		t.Fatal(err)
	}
	edited := &apiextensionsv1.CustomResourceDefinition{}
	j.operator.get(t, edited, "rootshards.operator.kcp.io")
	want := edited.Spec.DeepCopy()
	edited.Spec.Versions[0].AdditionalPrinterColumns = nil
	if err := j.operator.Update(t.Context(), edited, client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "a conflict", func(context.Context) error {
		err := j.operator.tryUpgrade(t, operatorRelease, operatorChart, with)
		if err == nil || !strings.Contains(err.Error(), "kubectl-edit") {
			return fmt.Errorf("upgrade over the edited definition: %w", err)
		}
		return nil
	})
	j.operator.upgrade(t, operatorRelease, operatorChart, with, func(upgrade *action.Upgrade) { upgrade.ForceConflicts = true })
	if j.operator.get(t, edited, edited.Name); !equality.Semantic.DeepEqual(&edited.Spec, want) {
		t.Error("the upgrade has not restored the definition")
	}
	deployment := &appsv1.Deployment{}
	if j.operator.get(t, deployment, operatorRelease); deployment.Status.ReadyReplicas != 2 {
		t.Errorf("%d replicas of the operator are ready, want 2", deployment.Status.ReadyReplicas)
	}
	j.operator.get(t, &policyv1.PodDisruptionBudget{}, operatorRelease)
	j.operator.get(t, &networkingv1.NetworkPolicy{}, operatorRelease)
	j.operator.get(t, parse(t, `{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor}`), operatorRelease)
	j.readMetrics(t)
}

func (j *journey) upgradeInstallation(t *testing.T) {
	next := image(t, "E2E_NEXT_IMAGE")
	end := j.startWork(t)
	with := j.installationValues(t)
	with["image"] = next
	with["kubeconfigs"] = map[string]any{"reporting": map[string]any{"username": "reporting", "groups": []any{"reporting"}, "validity": "720h"}}
	j.kcp.upgrade(t, installedRelease, installationChart, with)
	j.waitReady(t)
	end()
	deployments := &appsv1.DeploymentList{}
	if err := j.kcp.List(t.Context(), deployments, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	want := os.Getenv("E2E_NEXT_IMAGE")
	for _, deployment := range deployments.Items {
		if got := deployment.Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("Deployment %s has image %s, want %s", deployment.Name, got, want)
		}
	}
	j.kcp.get(t, &corev1.Secret{}, "reporting")
}

// rollBack takes back a release of the installation whose image does not exist, and that of the operator with metrics.
func (j *journey) rollBack(t *testing.T) {
	broken := j.installationValues(t)
	broken["frontProxies"].(map[string]any)["frontproxy"].(map[string]any)["image"] = map[string]any{"tag": "does-not-exist"}
	j.kcp.upgrade(t, installedRelease, installationChart, broken)
	eventually(t, time.Minute, "a front proxy that is not Ready", func(ctx context.Context) error {
		proxy := &operatorv1alpha1.FrontProxy{}
		if err := j.kcp.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "frontproxy"}, proxy); err != nil {
			return err
		}
		if ready := meta.FindStatusCondition(proxy.Status.Conditions, operatorv1alpha1.ConditionReady); ready.Status == metav1.ConditionTrue {
			return fmt.Errorf("%+v", ready)
		}
		return nil
	})
	j.kcp.rollback(t, installedRelease, 2)
	j.waitReady(t)
	j.checkWork(t)

	j.operator.rollback(t, operatorRelease, 1)
	deployment := &appsv1.Deployment{}
	if j.operator.get(t, deployment, operatorRelease); *deployment.Spec.Replicas != 1 {
		t.Errorf("after the rollback, the operator has %d replicas", *deployment.Spec.Replicas)
	}
	for _, removed := range []client.Object{&policyv1.PodDisruptionBudget{}, &networkingv1.NetworkPolicy{}} {
		if err := j.operator.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: operatorRelease}, removed); !apierrors.IsNotFound(err) {
			t.Errorf("after the rollback, %T: %v", removed, err)
		}
	}
}

func (c *cluster) rollback(t *testing.T, name string, revision int) {
	t.Helper()
	rollback := action.NewRollback(c.config)
	rollback.Version, rollback.WaitStrategy, rollback.Timeout = revision, c.wait, timeout
	if err := rollback.Run(name); err != nil {
		t.Fatal(err)
	}
}
