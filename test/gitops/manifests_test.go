//go:build gitops

package gitops

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/atoll-dev/atoll/test/gitops/repository"
	"github.com/atoll-dev/atoll/test/hostcluster"
)

// Paths in the repository.
const (
	operatorPath     = "clusters/dev/operator"
	installationPath = "clusters/dev/installation"
)

// operatorFiles are an overlay of config/default. The operator registers workspaces in the namespace argocd.
func operatorFiles() repository.Files {
	return repository.Files{operatorPath + "/kustomization.yaml": `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../../../config/default
patches:
- target: {kind: Deployment, name: atoll-controller-manager}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --argocd-namespace=argocd}
`}
}

// installationFiles are an overlay of config/development/sharded with an address that this machine and the pods reach. All
// servers have one image, repository:tag, but Shard beta, which has another tag of it, and the internal proxy of the root shard. All its objects are in the sync wave after that of the operator:
// they are applied when the operator runs, and deleted before it. More files of manifests may be beside it.
func (e *environment) installationFiles(image, betaTag string, more repository.Files) repository.Files {
	name, tag, _ := strings.Cut(image, ":")
	files, resources := repository.Files{}, ""
	for _, file := range slices.Sorted(maps.Keys(more)) {
		files[installationPath+"/"+file] = more[file]
		resources += "- " + file + "\n"
	}
	files[installationPath+"/kustomization.yaml"] = fmt.Sprintf(`
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../../../config/development/sharded
%[6]scommonAnnotations: {argocd.argoproj.io/sync-wave: "1"}
patches:
- patch: |
    apiVersion: operator.kcp.io/v1alpha1
    kind: RootShard
    metadata: {name: root, namespace: %[1]s, annotations: {operator.kcp.io/rollout-timeout: 40s}}
    spec:
      external: {hostname: "%[2]s", port: 6443}
- patch: |
    apiVersion: operator.kcp.io/v1alpha1
    kind: FrontProxy
    metadata: {name: frontproxy, namespace: %[1]s}
    spec:
      serviceTemplate: {spec: {clusterIP: "%[2]s"}}
      certificateTemplates: {server: {spec: {ipAddresses: [127.0.0.1, "%[2]s"]}}}
- target: {kind: RootShard|Shard|CacheServer|FrontProxy}
  patch: |
    - {op: add, path: /spec/image, value: {repository: "%[3]s", tag: "%[4]s"}}
- target: {kind: Shard, name: beta}
  patch: |
    - {op: add, path: /spec/image/tag, value: "%[5]s"}
`, namespace, e.address, name, tag, betaTag, resources)
	return files
}

// gitopsUsers register the root workspace and root:team in Argo CD. The second Kubeconfig waits for its workspace, and has the rights of
// config/gitops/workspace-role.yaml there. Its user is another one: the creator of a workspace is its administrator, by the user name.
const gitopsUsers = `
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: gitops-root, namespace: kcp}
spec:
  username: gitops
  validity: 720h
  secretRef: {name: gitops-root-kubeconfig}
  target: {frontProxyRef: {name: frontproxy}}
  authorization: {clusterRoleBindings: {clusterRoles: [cluster-admin]}}
  argoCD: {}
---
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: gitops-team, namespace: kcp}
spec:
  username: gitops-team
  validity: 720h
  secretRef: {name: gitops-team-kubeconfig}
  target: {frontProxyRef: {name: frontproxy}}
  targetWorkspace: root:team
  authorization: {clusterRoleBindings: {clusterRoles: [gitops]}}
  argoCD: {project: team, labels: {stage: development}}
`

// workspaceFiles are the content of the root workspace: the workspace of a team.
func workspaceFiles() repository.Files {
	return repository.Files{"workspaces/team.yaml": `
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: team}
spec: {type: {name: universal, path: root}}
`}
}

// teamFiles are the content of root:team: an API, a binding of it, and namespaces with objects. One file of content leaves the repository
// later; the other one stays until its Application is deleted.
func teamFiles() repository.Files {
	return repository.Files{"team/api.yaml": hostcluster.WidgetAPI + `---
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: widgets}
spec: {reference: {export: {path: "root:team", name: widgets}}}
`, "team/shop.yaml": teamContent("shop"), "team/office.yaml": teamContent("office")}
}

// teamContent is a namespace with a ConfigMap, and an object of the bound API.
func teamContent(name string) string {
	return fmt.Sprintf(`
apiVersion: example.com/v1
kind: Widget
metadata:
  name: %[1]s
  annotations: {argocd.argoproj.io/sync-wave: "1", argocd.argoproj.io/sync-options: SkipDryRunOnMissingResource=true}
spec: {size: 3}
---
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: %[1]s}
data: {colour: green}
`, name)
}

// adminFile binds a user of the team to cluster-admin, which the role of Argo CD in the workspace does not allow.
const adminFile = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: everything}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: gitops-team}]
`
