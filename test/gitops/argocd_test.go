//go:build gitops

package gitops

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/test/gitops/repository"
)

// TestArgoCD installs everything by Argo CD, in the order of a user's tasks.
func TestArgoCD(t *testing.T) {
	a := startArgoCD(t, newEnvironment(t))
	if !t.Run("an installation becomes Synced and Healthy", a.testInstall) {
		t.FailNow()
	}
}

// The Applications: the operator with the installation, and the content of root.
const (
	appName        = "atoll"
	workspacesName = "workspaces"
)

// applicationManifest is an Application of a folder of the repository. Deleting it deletes its objects.
func (a *argoCD) applicationManifest(name, path, destination string) string {
	return fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %s
  namespace: argocd
  finalizers: [resources-finalizer.argocd.argoproj.io/background]
spec:
  project: default
  source: {repoURL: %q, targetRevision: main, path: %s}
  destination: %s
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    retry: {limit: 5, backoff: {duration: 5s, maxDuration: 30s}}
    syncOptions: [ServerSideApply=true]
`, name, a.repository.URL, path, destination)
}

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
	a.apply(t, a.applicationManifest(appName, "clusters/dev", "{server: https://kubernetes.default.svc}"))
	// One Kubeconfig waits for the workspace of the team, which the next Application makes.
	a.apply(t, a.applicationManifest(workspacesName, "workspaces", "{name: root}"))
	a.awaitHealthy(t, appName, 10*time.Minute)
}
