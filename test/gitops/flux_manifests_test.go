//go:build gitops

package gitops

import (
	"fmt"
	"strings"

	"github.com/atoll-dev/atoll/test/gitops/repository"
)

// platform is what an administrator applies once: the repository, the operator and an installation.
func (f *flux) platform() string {
	return fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: platform, namespace: flux-system}
spec:
  url: %q
  ref: {branch: main}
  interval: 1h
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: operator, namespace: flux-system}
spec:
  sourceRef: {kind: GitRepository, name: platform}
  path: ./%s
  interval: 1h
  retryInterval: 10s
  timeout: 5m
  wait: true
  prune: true
  deletionPolicy: WaitForTermination
---
%s`, f.repository.URL, operatorPath, fluxInstallation("8m"))
}

// installation are the manifests of an installation whose servers have one image, with other objects.
func (f *flux) installation(image string, more repository.Files) repository.Files {
	_, tag, _ := strings.Cut(image, ":")
	return f.installationFiles(image, tag, more)
}

// fluxInstallation is the Kustomization of the installation, which has failed when it is not ready within a time.
func fluxInstallation(timeout string) string {
	return fmt.Sprintf(`
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: installation, namespace: flux-system}
spec:
  dependsOn: [{name: operator}]
  sourceRef: {kind: GitRepository, name: platform}
  path: ./%s
  interval: 1h
  retryInterval: 10s
  timeout: %s
  wait: true
  prune: true
  deletionPolicy: WaitForTermination
`, installationPath, timeout)
}

// Kustomizations of the namespace of the installation, in the order in which one depends on another.
const (
	fluxWorkspaces = "workspaces" // workspaces below root
	fluxAccess     = "access"     // Kubeconfigs for them
	fluxProvider   = "provider"   // content of root:provider
	fluxTeam       = "team"       // a binding and other content of root:team
	fluxWidgets    = "widgets"    // objects of the bound API in root:team
)

// fluxContent puts workspaces and their content into the installation.
const fluxContent = `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: workspaces, namespace: kcp}
spec:
  kubeConfig: {secretRef: {name: admin-kubeconfig, key: kubeconfig}}
  healthCheckExprs:
  - apiVersion: tenancy.kcp.io/v1alpha1
    kind: Workspace
    inProgress: "!has(status.phase) || status.phase != 'Ready'"
    current: status.phase == 'Ready'
  sourceRef: {kind: GitRepository, name: platform, namespace: flux-system}
  path: ./workspaces/root
  interval: 1h
  retryInterval: 5s
  timeout: 2m
  wait: true
  prune: true
  deletionPolicy: WaitForTermination
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: access, namespace: kcp}
spec:
  dependsOn: [{name: workspaces}]
  sourceRef: {kind: GitRepository, name: platform, namespace: flux-system}
  path: ./clusters/dev/access
  interval: 1h
  retryInterval: 5s
  timeout: 2m
  wait: true
  prune: true
  deletionPolicy: WaitForTermination
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: provider, namespace: kcp}
spec:
  dependsOn: [{name: access}]
  kubeConfig: {secretRef: {name: provider-kubeconfig, key: kubeconfig}}
  sourceRef: {kind: GitRepository, name: platform, namespace: flux-system}
  path: ./workspaces/provider
  interval: 1h
  retryInterval: 5s
  timeout: 2m
  wait: true
  prune: true
  deletionPolicy: WaitForTermination
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: team, namespace: kcp}
spec:
  dependsOn: [{name: provider}]
  kubeConfig: {secretRef: {name: team-kubeconfig, key: kubeconfig}}
  healthCheckExprs:
  - apiVersion: apis.kcp.io/v1alpha2
    kind: APIBinding
    inProgress: "!has(status.phase) || status.phase != 'Bound'"
    current: status.phase == 'Bound'
  sourceRef: {kind: GitRepository, name: platform, namespace: flux-system}
  path: ./workspaces/team/base
  interval: 1h
  retryInterval: 5s
  timeout: 2m
  wait: true
  prune: true
  deletionPolicy: WaitForTermination
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: widgets, namespace: kcp}
spec:
  dependsOn: [{name: team}]
  kubeConfig: {secretRef: {name: team-kubeconfig, key: kubeconfig}}
  sourceRef: {kind: GitRepository, name: platform, namespace: flux-system}
  path: ./workspaces/team/widgets
  interval: 1h
  retryInterval: 5s
  timeout: 2m
  wait: true
  prune: true
  deletionPolicy: WaitForTermination
`

// contentFiles are two workspaces, a Kubeconfig for each, an API in one, and a binding of it with an object in the other.
func contentFiles() repository.Files {
	return repository.Files{
		"workspaces/root/workspaces.yaml": `
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: provider}
spec: {type: {name: universal, path: root}}
---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: team}
spec: {type: {name: universal, path: root}}
`,
		"clusters/dev/access/kubeconfigs.yaml": `
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: provider, namespace: kcp}
spec:
  username: flux-provider
  validity: 720h
  secretRef: {name: provider-kubeconfig}
  target: {frontProxyRef: {name: frontproxy}}
  targetWorkspace: root:provider
  authorization: {clusterRoleBindings: {clusterRoles: [cluster-admin]}}
---
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: team, namespace: kcp}
spec:
  username: flux-team
  validity: 720h
  secretRef: {name: team-kubeconfig}
  target: {frontProxyRef: {name: frontproxy}}
  targetWorkspace: root:team
  authorization: {clusterRoleBindings: {clusterRoles: [cluster-admin]}}
`,
		"workspaces/provider/api.yaml": `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: widgets}
spec:
  resources:
  - {group: example.com, name: widgets, schema: v1.widgets.example.com, storage: {crd: {}}}
`,
		"workspaces/provider/access.yaml": `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bind-widgets}
rules:
- {apiGroups: [apis.kcp.io], resources: [apiexports], resourceNames: [widgets], verbs: [bind]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bind-widgets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bind-widgets}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: flux-team}]
`,
		"workspaces/team/base/binding.yaml": `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: widgets}
spec: {reference: {export: {path: root:provider, name: widgets}}}
`,
		"workspaces/team/base/settings.yaml":  settings("one"),
		"workspaces/team/widgets/first.yaml":  widget("first"),
		"workspaces/team/widgets/second.yaml": widget("second"),
	}
}

// settings is a ConfigMap of the team.
func settings(value string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {value: %s}
`, value)
}

// widget is an object of the bound API.
func widget(name string) string {
	return fmt.Sprintf(`
apiVersion: example.com/v1
kind: Widget
metadata: {name: %s}
spec: {size: 3}
`, name)
}
