//go:build gitops

package gitops

import (
	"fmt"
	"strings"

	"github.com/atoll-dev/atoll/test/gitops/repository"
	"github.com/atoll-dev/atoll/test/hostcluster"
)

// platform contains the manifests that an administrator applies once: the repository, the operator and an installation.
func (f *flux) platform() string {
	return fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: platform, namespace: flux-system}
spec:
  url: %q
  ref: {branch: main}
  interval: 1h
`, f.repository.URL) +
		kustomization("operator", "flux-system", operatorPath, "5m", "  retryInterval: 10s\n") + fluxInstallation("8m")
}

// installation are the manifests of an installation whose servers have one image, with other objects.
func (f *flux) installation(image string, more repository.Files) repository.Files {
	_, tag, _ := strings.Cut(image, ":")
	return f.installationFiles(image, tag, more)
}

// fluxInstallation is the Kustomization of the installation, which has failed when it is not ready within a time.
func fluxInstallation(timeout string) string {
	return kustomization("installation", "flux-system", installationPath, timeout, after("operator"), "  retryInterval: 10s\n")
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
func fluxContent() string {
	return fluxOf(fluxWorkspaces, "workspaces/root", inWorkspace("admin"), isInPhase("tenancy.kcp.io/v1alpha1", "Workspace", "Ready")) +
		fluxOf(fluxAccess, "clusters/dev/access", after(fluxWorkspaces)) +
		fluxOf(fluxProvider, "workspaces/provider", after(fluxAccess), inWorkspace("provider")) +
		fluxOf(fluxTeam, "workspaces/team/base", after(fluxProvider), inWorkspace("team"), isInPhase("apis.kcp.io/v1alpha2", "APIBinding", "Bound")) +
		fluxOf(fluxWidgets, "workspaces/team/widgets", after(fluxTeam), inWorkspace("team"))
}

// fluxOf is a Kustomization of a path in the namespace of the installation, with other fields.
func fluxOf(name, path string, fields ...string) string {
	return kustomization(name, namespace, path, "2m", append(fields, "  retryInterval: 5s\n")...)
}

// kustomization is a Kustomization that is Ready when all objects of a path of the repository are, and deletes them with it.
func kustomization(name, namespace, path, timeout string, fields ...string) string {
	return fmt.Sprintf(`---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: %s, namespace: %s}
spec:
  sourceRef: {kind: GitRepository, name: platform, namespace: flux-system}
  path: ./%s
  interval: 1h
  timeout: %s
  wait: true
  prune: true
  deletionPolicy: WaitForTermination
%s`, name, namespace, path, timeout, strings.Join(fields, ""))
}

// after has a Kustomization wait for another one.
func after(name string) string { return fmt.Sprintf("  dependsOn: [{name: %s}]\n", name) }

// inWorkspace has a Kustomization apply into the workspace of a Kubeconfig.
func inWorkspace(of string) string {
	return fmt.Sprintf("  kubeConfig: {secretRef: {name: %s-kubeconfig, key: kubeconfig}}\n", of)
}

// isInPhase has a Kustomization wait for a phase of the objects of a kind, which have no Ready condition that kstatus knows from the start.
func isInPhase(apiVersion, kind, phase string) string {
	return fmt.Sprintf(`  healthCheckExprs:
  - apiVersion: %s
    kind: %s
    inProgress: "!has(status.phase) || status.phase != '%[3]s'"
    current: status.phase == '%[3]s'
`, apiVersion, kind, phase)
}

// contentFiles are two workspaces, a Kubeconfig for each, an API in one, and a binding of it with an object in the other, where Flux has
// the rights of config/gitops/workspace-role.yaml.
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
  authorization: {clusterRoleBindings: {clusterRoles: [gitops]}}
`,
		"workspaces/provider/api.yaml": hostcluster.WidgetAPI,
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
