//go:build gitops

package gitops

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/test/gitops/repository"
)

// TestFlux installs everything with Flux, in the order of a user's tasks. The last step removes it.
func TestFlux(t *testing.T) {
	f := startFlux(t, newEnvironment(t))
	t.Cleanup(func() { f.dump(t) })
	if !t.Run("an installation becomes Ready", f.testInstall) {
		t.FailNow()
	}
	if t.Run("content of workspaces", f.testContent) {
		t.Run("a renewed certificate is followed", f.testRenewal)
		t.Run("what leaves the repository leaves the workspace", f.testPrune)
	}
	t.Run("nothing changes when it is applied again", f.testNoDrift)
	t.Run("a change is Reconciling, then Ready", f.testChange)
	t.Run("a change that breaks is reported, and reverted", f.testBroken)
	t.Run("deletion removes all", f.testRemoval)
}

// testInstall has Flux install the operator and an installation. The Kustomization is ready after the objects, not before.
func (f *flux) testInstall(t *testing.T) {
	files := operatorFiles()
	maps.Copy(files, f.installation(os.Getenv(envImage), nil))
	revision := f.repository.Write(t, "an installation of three shards", files)
	f.create(t, f.platform())
	f.awaitReady(t, 5*time.Minute, fluxNamespace, "operator", revision)
	f.awaitReady(t, 10*time.Minute, fluxNamespace, "installation", revision)
	kustomization, err := f.get(t.Context(), kustomizationKind, fluxNamespace, "installation")
	if err != nil {
		t.Fatal(err)
	}
	since := stateOf(kustomization).ready.LastTransitionTime
	objects := f.operatorObjects(t)
	if len(objects) == 0 {
		t.Fatal("there are no objects of the operator")
	}
	for _, u := range objects {
		ready := conditionOf(&u, operatorv1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || since.Before(&ready.LastTransitionTime) {
			t.Errorf("the Kustomization is Ready since %v, and %s %s: %v", since, u.GetKind(), u.GetName(), ready)
		}
	}
}

var kindsOfInstallation = []string{"RootShard", "CacheServer", "Shard", "FrontProxy", "Kubeconfig"}

// operatorObjects returns the objects of the installation.
func (f *flux) operatorObjects(t *testing.T) (out []unstructured.Unstructured) {
	t.Helper()
	for _, kind := range kindsOfInstallation {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := f.host.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		out = append(out, list.Items...)
	}
	return out
}

// testNoDrift has Flux apply the same revision again: it finds nothing to change.
func (f *flux) testNoDrift(t *testing.T) {
	before, changes := f.operatorObjects(t), f.changes(t)
	for _, name := range []string{"operator", "installation"} {
		requested := f.reconcile(t, kustomizationKind, fluxNamespace, name)
		f.await(t, 3*time.Minute, fluxNamespace, name, "reconciled again", func(s fluxState) bool {
			return s.handled == requested && s.ready != nil && s.ready.Status == metav1.ConditionTrue
		})
	}
	for i, now := range f.operatorObjects(t) {
		if before[i].GetName() != now.GetName() || before[i].GetGeneration() != now.GetGeneration() {
			t.Errorf("%s %s: generation %d is %d now", now.GetKind(), now.GetName(), before[i].GetGeneration(), now.GetGeneration())
		}
	}
	if now := f.changes(t); now != changes {
		t.Errorf("Flux reports changes: had %d, has %d", changes, now)
	}
}

// changes returns how many events of Kustomizations report changed objects.
func (f *flux) changes(t *testing.T) (count int32) {
	t.Helper()
	events := &corev1.EventList{}
	if err := f.host.List(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if event.InvolvedObject.Kind == kustomizationKind.Kind && strings.Contains(event.Message, "configured") {
			count += max(1, event.Count)
		}
	}
	return count
}

// testChange rolls another image out: the Kustomization is Reconciling until all pods run it.
func (f *flux) testChange(t *testing.T) {
	revision := f.repository.Write(t, "the next image", f.installation(os.Getenv(envNextImage), nil))
	f.pull(t)
	if reconciled := f.awaitReady(t, 8*time.Minute, fluxNamespace, "installation", revision); !reconciled {
		t.Error("the Kustomization was not Reconciling during the rollout")
	}
	pods := &corev1.PodList{}
	if err := f.host.List(t.Context(), pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/component": "shard"}); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if image := pods.Items[i].Spec.Containers[0].Image; image != os.Getenv(envNextImage) && pods.Items[i].DeletionTimestamp == nil {
			t.Errorf("pod %s runs %s", pods.Items[i].Name, image)
		}
	}
}

// testBroken commits mistakes. Flux names the object, whose message has the reason; a revert repairs it.
func (f *flux) testBroken(t *testing.T) {
	t.Run("a spec that is invalid", func(t *testing.T) {
		files := f.installation(os.Getenv(envNextImage), nil)
		for name, content := range files {
			files[name] = strings.Replace(content, `hostname: "`, `hostname: "https://`, 1)
		}
		f.testMistake(t, files, "", "RootShard/kcp/root", "spec.external.hostname")
	})
	t.Run("an object that needs its user", func(t *testing.T) {
		files := f.installation(os.Getenv(envNextImage), repository.Files{"second.yaml": `
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: second, namespace: kcp}
spec:
  username: second
  validity: 720h
  secretRef: {name: admin-kubeconfig}
  target: {frontProxyRef: {name: frontproxy}}
`})
		f.testMistake(t, files, "SecretTaken: Secret admin-kubeconfig belongs to Kubeconfig kubeconfig-kcp-admin", "Kubeconfig/kcp/second", "Failed")
	})
	t.Run("an image that cannot be pulled", func(t *testing.T) {
		f.create(t, fluxInstallation("30s"))
		defer f.create(t, fluxInstallation("8m"))
		repositoryName, _, _ := strings.Cut(os.Getenv(envImage), ":")
		f.testMistake(t, f.installation(repositoryName+":missing", nil), ":missing of container cache-server cannot be pulled", "RootShard/kcp/root", "InProgress")
	})
}

// testMistake commits files, waits until the Kustomization names the expected object, and reverts the commit. If reason is not empty, an
// object of the installation has that reason.
func (f *flux) testMistake(t *testing.T, files repository.Files, reason string, want ...string) {
	t.Helper()
	revision := f.repository.Write(t, "a mistake", files)
	f.pull(t)
	state, _ := f.await(t, 3*time.Minute, fluxNamespace, "installation", "fails", func(s fluxState) bool { return s.hasFailed(revision) })
	t.Logf("%s: %s", state.ready.Reason, state.ready.Message)
	for _, text := range want {
		if !strings.Contains(state.ready.Message, text) {
			t.Errorf("the Kustomization does not name %q: %s", text, state.ready.Message)
		}
	}
	if !slices.ContainsFunc(f.operatorObjects(t), func(u unstructured.Unstructured) bool {
		ready := conditionOf(&u, operatorv1alpha1.ConditionReady)
		return reason == "" || ready != nil && ready.Status == metav1.ConditionFalse && strings.Contains(ready.Reason+": "+ready.Message, reason)
	}) {
		t.Errorf("no object has the reason %q", reason)
	}
	revision = f.repository.Revert(t)
	f.pull(t)
	f.awaitReady(t, 8*time.Minute, fluxNamespace, "installation", revision)
}

// testContent has Flux create workspaces, and put an API and objects of it into them by the Secrets of Kubeconfigs.
func (f *flux) testContent(t *testing.T) {
	revision := f.repository.Write(t, "workspaces", contentFiles())
	f.create(t, fluxContent())
	f.pull(t)
	f.awaitReady(t, 3*time.Minute, namespace, fluxWorkspaces, revision)
	f.createWorkspaceRole(t, "team")
	for _, name := range []string{fluxAccess, fluxProvider, fluxTeam, fluxWidgets} {
		f.awaitReady(t, 3*time.Minute, namespace, name, revision)
	}
	f.picture(t, "flux", "kubectl", "get", "gitrepositories,kustomizations", "--all-namespaces")
	first := newWidget("first")
	if err := newClient(t, f.workspace(t, "team-kubeconfig")).Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil {
		t.Errorf("the widget in root:team: %v", err)
	}
}

func (f *flux) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := f.host.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// testRenewal issues the certificate of a Kubeconfig again. Flux uses the new one.
func (f *flux) testRenewal(t *testing.T) {
	before := f.secret(t, "team-kubeconfig")
	if err := f.host.Delete(t.Context(), f.secret(t, "kubeconfig-cert-team")); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "a new kubeconfig in Secret team-kubeconfig", func(ctx context.Context) error {
		secret := &corev1.Secret{}
		if err := f.host.Get(ctx, client.ObjectKeyFromObject(before), secret); err != nil {
			return err
		}
		if bytes.Equal(secret.Data["kubeconfig"], before.Data["kubeconfig"]) {
			return errors.New("it is the same")
		}
		return nil
	})
	revision := f.repository.Write(t, "other settings", repository.Files{"workspaces/team/base/settings.yaml": settings("two")})
	f.pull(t)
	f.awaitReady(t, 2*time.Minute, namespace, fluxTeam, revision)
	found := &corev1.ConfigMap{}
	if err := newClient(t, f.workspace(t, "team-kubeconfig")).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "settings"}, found); err != nil || found.Data["value"] != "two" {
		t.Errorf("the settings in root:team are %v (%v)", found.Data, err)
	}
}

// testPrune removes objects from the repository.
func (f *flux) testPrune(t *testing.T) {
	f.repository.Remove(t, "no widget", "workspaces/team/widgets/first.yaml")
	revision := f.repository.Remove(t, "no settings", "workspaces/team/base/settings.yaml")
	f.pull(t)
	f.awaitReady(t, 2*time.Minute, namespace, fluxWidgets, revision)
	team := newClient(t, f.workspace(t, "team-kubeconfig"))
	widgets := &unstructured.UnstructuredList{}
	widgets.SetAPIVersion("example.com/v1")
	widgets.SetKind("WidgetList")
	settings := &corev1.ConfigMap{}
	err := team.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "settings"}, settings)
	if err == nil || client.IgnoreNotFound(err) != nil {
		t.Errorf("the settings in root:team are still there (%v)", err)
	}
	if err := team.List(t.Context(), widgets); err != nil || len(widgets.Items) != 1 || widgets.Items[0].GetName() != "second" {
		t.Errorf("root:team has %d widgets, want the second only (%v)", len(widgets.Items), err)
	}
}

// testRemoval deletes the Kustomizations from the last to the first. No object of the installation and the operator remains.
func (f *flux) testRemoval(t *testing.T) {
	f.remove(t, 3*time.Minute, namespace, fluxWidgets, fluxTeam, fluxProvider, fluxAccess, fluxWorkspaces)
	f.remove(t, 5*time.Minute, fluxNamespace, "installation", "operator")
	for _, name := range []string{namespace, "atoll-system"} {
		if err := f.host.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{}); err == nil {
			t.Errorf("namespace %s is still there", name)
		}
	}
	if mapping, err := f.host.RESTMapper().RESTMapping(operatorv1alpha1.SchemeGroupVersion.WithKind("RootShard").GroupKind()); err == nil {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(mapping.GroupVersionKind)
		if err := f.host.List(t.Context(), list); err == nil {
			t.Error("the definitions of the operator are still there")
		}
	}
}

// dump logs the states of Flux and the operator after a failure.
func (f *flux) dump(t *testing.T) {
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	kinds := []schema.GroupVersionKind{gitRepositoryKind, kustomizationKind}
	for _, kind := range kindsOfInstallation {
		kinds = append(kinds, operatorv1alpha1.SchemeGroupVersion.WithKind(kind))
	}
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := f.host.List(ctx, list); err != nil {
			t.Log(err)
		}
		for i := range list.Items {
			t.Logf("%s %s/%s: %s", kind.Kind, list.Items[i].GetNamespace(), list.Items[i].GetName(), stateOf(&list.Items[i]))
		}
	}
}
