//go:build gitops

package gitops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/test/gitops/repository"
)

// TestArgoCD installs everything with Argo CD, in the order of a user's tasks. The last step removes it.
func TestArgoCD(t *testing.T) {
	a := startArgoCD(t, newEnvironment(t))
	if !t.Run("an installation becomes Synced and Healthy", a.testInstall) {
		t.FailNow()
	}
	if t.Run("workspaces and their content", a.testWorkspaces) {
		t.Run("drift in a workspace is corrected", a.testDrift)
		t.Run("what the role in a workspace does not allow is reported", a.testForbidden)
	}
	t.Run("nothing drifts", a.testSteady)
	t.Run("a new image is rolled out", a.testNewImage)
	t.Run("an image that cannot be pulled degrades, and a revert repairs", a.testBrokenImage)
	t.Run("what leaves the repository leaves the workspace, and so does the rest with its Application", a.testWorkspaceRemoval)
	t.Run("removal leaves the definitions only", a.testRemoval)
}

// The Applications: the operator with the installation, the content of root, and that of root:team.
const (
	appName        = "atoll"
	workspacesName = "workspaces"
	teamName       = "team"
)

// applicationManifest is an Application of a folder of the repository. Deleting it deletes its objects, in the background or the foreground.
func (a *argoCD) applicationManifest(project, name, path, destination, deletion string) string {
	return fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %s
  namespace: argocd
  finalizers: [resources-finalizer.argocd.argoproj.io/%s]
spec:
  project: %s
  source: {repoURL: %q, targetRevision: main, path: %s}
  destination: %s
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    retry: {limit: 5, backoff: {duration: 5s, maxDuration: 30s}}
    syncOptions: [ServerSideApply=true]
`, name, deletion, project, a.repository.URL, path, destination)
}

// teamProject is a project for one workspace, in which it may apply any kind.
const teamProject = `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: team, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{name: "root:team", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`

// testInstall creates one Application of the operator and the installation.
func (a *argoCD) testInstall(t *testing.T) {
	_, tag, _ := strings.Cut(os.Getenv(envImage), ":")
	files := operatorFiles()
	maps.Copy(files, a.installationFiles(os.Getenv(envImage), tag, repository.Files{"gitops.yaml": gitopsUsers}))
	maps.Copy(files, workspaceFiles())
	maps.Copy(files, teamFiles())
	files["clusters/dev/kustomization.yaml"] = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [operator, installation]
`
	a.revision = a.repository.Write(t, "an installation of three shards, and a workspace", files)
	a.apply(t, a.applicationManifest("default", appName, "clusters/dev", "{server: https://kubernetes.default.svc}", "background"))
	// One Kubeconfig waits for the workspace of the team, which the next Application creates.
	a.apply(t, a.applicationManifest("default", workspacesName, "workspaces", "{name: root}", "foreground"))
	a.awaitHealthy(t, appName, 10*time.Minute)
}

// testWorkspaces waits for the Workspace that one Application has created, and creates content in it with another one, which uses
// permissions that an administrator of the workspace has granted.
func (a *argoCD) testWorkspaces(t *testing.T) {
	a.awaitHealthy(t, workspacesName, 2*time.Minute)
	a.createWorkspaceRole(t, "team")
	a.apply(t, teamProject)
	a.apply(t, a.applicationManifest("team", teamName, "team", "{name: \"root:team\"}", "foreground"))
	a.awaitHealthy(t, teamName, 4*time.Minute)
	app, err := a.application(t.Context(), teamName)
	if err != nil {
		t.Fatal(err)
	}
	if len(app.Status.Resources) != 9 {
		t.Errorf("%d objects, want 9: %v", len(app.Status.Resources), app.Status.Resources)
	}
	// From this step on, Argo CD compares it with dry runs of the server.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"argocd.argoproj.io/compare-options":"ServerSideDiff=true"}}}`))
	if err := a.host.Patch(t.Context(), applicationObject(teamName), patch); err != nil {
		t.Fatal(err)
	}
}

// testDrift changes an object of a workspace as a user with rights in it.
func (a *argoCD) testDrift(t *testing.T) {
	team := newClient(t, a.workspace(t, "gitops-team-kubeconfig"))
	settings := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: "shop", Name: "settings"}
	if err := team.Get(t.Context(), key, settings); err != nil {
		t.Fatal(err)
	}
	settings.Data["colour"] = "red"
	if err := team.Update(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	widget := newWidget("shop")
	if err := team.Patch(t.Context(), widget, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":5}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "the colour and the size of the repository", func(ctx context.Context) error {
		if err := errors.Join(team.Get(ctx, key, settings), team.Get(ctx, client.ObjectKeyFromObject(widget), widget)); err != nil {
			return err
		}
		size, _, _ := unstructured.NestedInt64(widget.Object, "spec", "size")
		if settings.Data["colour"] == "green" && size == 3 {
			return nil
		}
		return fmt.Errorf("the colour is %s, and the size %d", settings.Data["colour"], size)
	})
}

// testForbidden commits an object that Argo CD has no permission for in the workspace. The Application reports that; a revert repairs it.
func (a *argoCD) testForbidden(t *testing.T) {
	a.revision = a.repository.Write(t, "too much", repository.Files{"team/admin.yaml": adminFile})
	a.refresh(t, teamName)
	eventually(t, 2*time.Minute, "a message about the role", func(ctx context.Context) error {
		app, err := a.application(ctx, teamName)
		if err != nil {
			return err
		}
		said := app.reached(a.revision, "Healthy")
		if said == nil || !strings.Contains(said.Error(), `clusterrolebindings.rbac.authorization.k8s.io "everything" is forbidden: User "gitops-team"`) {
			return fmt.Errorf("it says: %v", said)
		}
		t.Log(said)
		return nil
	})
	expectGone(t, a.asAdmin(t, "team"), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everything"}})
	a.revision = a.repository.Revert(t)
	a.awaitHealthy(t, teamName, 2*time.Minute)
}

// testSteady watches all Applications. None may leave Synced or Healthy, and no generation may change.
func (a *argoCD) testSteady(t *testing.T) {
	names := []string{appName, workspacesName, teamName}
	for _, name := range names {
		a.awaitHealthy(t, name, 2*time.Minute)
	}
	before := a.generations(t)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	checks := 0
	for end := time.After(a.steady); ; checks++ {
		select {
		case <-ticker.C:
		case <-end:
			t.Logf("%d checks of %d Applications and %d objects in %s", checks, len(names), len(before), a.steady)
			for name, generation := range a.generations(t) {
				if before[name] != generation {
					t.Errorf("%s has changed: generation %d, was %d", name, generation, before[name])
				}
			}
			return
		}
		for _, name := range names {
			app, err := a.application(t.Context(), name)
			if err == nil {
				err = app.reached(a.revision, "Healthy")
			}
			if err != nil {
				t.Fatalf("%s after %d checks: %v", name, checks, err)
			}
		}
	}
}

// generations returns the generations of all objects of the Application atoll, and of those that the operator has created for them.
func (a *argoCD) generations(t *testing.T) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	kinds := operatorKinds()
	for _, u := range []struct{ version, kind string }{{"apps/v1", "Deployment"}, {"apps/v1", "StatefulSet"}, {"cert-manager.io/v1", "Certificate"}} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(u.version)
		list.SetKind(u.kind + "List")
		kinds = append(kinds, list)
	}
	for _, list := range kinds {
		if err := a.host.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			out[list.Items[i].GetKind()+" "+list.Items[i].GetName()] = list.Items[i].GetGeneration()
		}
	}
	return out
}

// operatorKinds are lists of the kinds of the operator.
func operatorKinds() []*unstructured.UnstructuredList {
	var out []*unstructured.UnstructuredList
	for _, kind := range []string{"RootShard", "CacheServer", "Shard", "VirtualWorkspace", "FrontProxy", "Kubeconfig"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind + "List"))
		out = append(out, list)
	}
	return out
}

// testNewImage commits another image of all servers.
func (a *argoCD) testNewImage(t *testing.T) {
	_, tag, _ := strings.Cut(os.Getenv(envNextImage), ":")
	a.revision = a.repository.Write(t, "the next image", a.installationFiles(os.Getenv(envNextImage), tag, repository.Files{"gitops.yaml": gitopsUsers}))
	a.awaitHealth(t, appName, "Progressing", 2*time.Minute)
	a.awaitHealthy(t, appName, 8*time.Minute)
	pods := &corev1.PodList{}
	if err := a.host.List(t.Context(), pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "kcp"}); err != nil {
		t.Fatal(err)
	}
	others := []string{"etcd", "rootshard-proxy"} // etcd is replaced for another repository only, and the internal proxy has a field of its own
	servers := map[string]int{}
	for i := range pods.Items {
		p := &pods.Items[i]
		component := p.Labels["app.kubernetes.io/component"]
		if p.DeletionTimestamp != nil || slices.Contains(others, component) {
			continue
		}
		servers[component]++
		if image := p.Spec.Containers[0].Image; image != os.Getenv(envNextImage) {
			t.Errorf("pod %s has the image %s", p.Name, image)
		}
	}
	if want := map[string]int{"rootshard": 1, "shard": 2, "cache-server": 1, "front-proxy": 1}; !maps.Equal(servers, want) {
		t.Errorf("pods by component: %v, want %v", servers, want)
	}
}

// testBrokenImage commits an image of one shard that does not exist, and reverts the commit when the rollout has stopped.
func (a *argoCD) testBrokenImage(t *testing.T) {
	a.revision = a.repository.Write(t, "a mistake", a.installationFiles(os.Getenv(envNextImage), "there-is-no-such-tag", repository.Files{"gitops.yaml": gitopsUsers}))
	app := a.awaitHealth(t, appName, "Degraded", 5*time.Minute)
	beta, alpha := app.shard(t, "beta"), app.shard(t, "alpha")
	if beta.Health.Status != "Degraded" || !strings.Contains(beta.Health.Message, ":there-is-no-such-tag of container kcp cannot be pulled") {
		t.Errorf("Shard beta is %s: %s", beta.Health.Status, beta.Health.Message)
	}
	if alpha.Health.Status != "Healthy" {
		t.Errorf("Shard alpha is %s: %s", alpha.Health.Status, alpha.Health.Message)
	}
	a.pictureOf(t, appName)
	a.revision = a.repository.Revert(t)
	a.awaitHealthy(t, appName, 5*time.Minute)
}

// testWorkspaceRemoval removes objects from git, then deletes the Applications of workspaces, inside first and in the foreground.
func (a *argoCD) testWorkspaceRemoval(t *testing.T) {
	a.revision = a.repository.Remove(t, "no shop", "team/shop.yaml")
	a.awaitHealthy(t, teamName, 2*time.Minute)
	team := a.asAdmin(t, "team")
	office := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "office"}}
	expectGone(t, team, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, newWidget("shop"))
	for _, object := range []client.Object{office, newWidget("office")} {
		if err := team.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Errorf("what stays in the repository: %v", err)
		}
	}
	a.deleteApplication(t, teamName)
	expectGone(t, team, office, newWidget("office"), object("apis.kcp.io/v1alpha2", "APIBinding", "widgets"), object("apis.kcp.io/v1alpha2", "APIExport", "widgets"))
	a.deleteApplication(t, workspacesName)
}

// testRemoval deletes the Application of the operator and the installation.
func (a *argoCD) testRemoval(t *testing.T) {
	a.deleteApplication(t, appName)
	a.deleteDefinitions(t)
	for _, name := range []string{namespace, "atoll-system"} {
		if err := a.host.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
			t.Errorf("namespace %s is still there (%v)", name, err)
		}
	}
	secrets := &corev1.SecretList{}
	if err := a.host.List(t.Context(), secrets, client.InNamespace(argoNamespace), client.MatchingLabels{"argocd.argoproj.io/secret-type": "cluster"}); err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		t.Errorf("Secret %s of a cluster is still there", secrets.Items[i].Name)
	}
}

// deleteDefinitions deletes the definitions, which Argo CD never deletes with their Application. Callers must have deleted their objects.
func (a *argoCD) deleteDefinitions(t *testing.T) {
	t.Helper()
	definitions := &unstructured.UnstructuredList{}
	definitions.SetAPIVersion("apiextensions.k8s.io/v1")
	definitions.SetKind("CustomResourceDefinitionList")
	if err := a.host.List(t.Context(), definitions); err != nil {
		t.Fatal(err)
	}
	var own []*unstructured.Unstructured
	for i := range definitions.Items {
		if group, _, _ := unstructured.NestedString(definitions.Items[i].Object, "spec", "group"); group == operatorv1alpha1.GroupName {
			own = append(own, &definitions.Items[i])
		}
	}
	kinds := operatorKinds()
	if len(own) != len(kinds) {
		t.Errorf("%d definitions of the operator are left, want %d", len(own), len(kinds))
	}
	for _, list := range kinds {
		if err := a.host.List(t.Context(), list); err != nil || len(list.Items) > 0 {
			t.Errorf("%d objects of %s are still there (%v)", len(list.Items), list.GetKind(), err)
		}
	}
	a.deleteAll(t, own)
}
