//go:build gitops

package gitops

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Statuses of objects that the scripts of config/argocd distinguish.
const (
	operatorStatus = `{observedGeneration: 2, conditions: [{type: Ready, status: "%s", reason: R, message: m}, {type: Stalled, status: "%s", reason: RolloutStopped, message: no image}%s]}`
	etcdFull       = `, {type: EtcdHealthy, status: "False", reason: NoSpace, message: full}`
	etcdReplacing  = `, {type: EtcdHealthy, status: "False", reason: Replacing, message: one member}`
	severity       = `{phase: "%s", conditions: [{type: Ready, status: "%[2]s"}, {type: Part, status: "%[2]s", severity: "%[3]s", reason: R, message: m}]}`
	noPhase        = `{conditions: [{type: Ready, status: "%[1]s", severity: "%[2]s", reason: Summary}, {type: Part, status: "%[1]s", severity: "%[2]s", reason: R, message: m}]}`
	readyOnly      = `{conditions: [{type: Ready, status: "%s", severity: "%s", reason: R, message: m}]}`
	readyReason    = `{conditions: [{type: Ready, status: "%s", reason: %s, message: m, observedGeneration: %d}]}`
)

// TestHealth checks the health that Argo CD reports for objects in every state that the scripts of config/argocd distinguish.
func TestHealth(t *testing.T) {
	settings := argoSettings(t)
	for name, tc := range map[string]struct{ apiVersion, kind, status, want string }{
		"RootShard that is new":         {"operator.kcp.io/v1alpha1", "RootShard", `{observedGeneration: -1}`, "Progressing: the operator has not looked at it yet"},
		"Shard without a status":        {"operator.kcp.io/v1alpha1", "Shard", `{}`, "Progressing: the operator has not looked at it yet"},
		"Shard of an older generation":  {"operator.kcp.io/v1alpha1", "Shard", `{observedGeneration: 1, conditions: [{type: Ready, status: "True", reason: R, message: m}]}`, "Progressing: the operator has not looked at it yet"},
		"Shard that is ready":           {"operator.kcp.io/v1alpha1", "Shard", fmt.Sprintf(operatorStatus, "True", "False", ""), "Healthy: R: m"},
		"FrontProxy on its way":         {"operator.kcp.io/v1alpha1", "FrontProxy", fmt.Sprintf(operatorStatus, "False", "False", ""), "Progressing: R: m"},
		"Kubeconfig on its way":         {"operator.kcp.io/v1alpha1", "Kubeconfig", fmt.Sprintf(operatorStatus, "Unknown", "False", ""), "Progressing: R: m"},
		"VirtualWorkspace that stalls":  {"operator.kcp.io/v1alpha1", "VirtualWorkspace", fmt.Sprintf(operatorStatus, "False", "True", ""), "Degraded: RolloutStopped: no image"},
		"CacheServer with a full etcd":  {"operator.kcp.io/v1alpha1", "CacheServer", fmt.Sprintf(operatorStatus, "True", "False", etcdFull), "Degraded: NoSpace: full"},
		"CacheServer that replaces one": {"operator.kcp.io/v1alpha1", "CacheServer", fmt.Sprintf(operatorStatus, "True", "False", etcdReplacing), "Healthy: R: m"},

		"Workspace that is new":               {"tenancy.kcp.io/v1alpha1", "Workspace", `{}`, "Progressing: no server has looked at it yet"},
		"Workspace that waits for a shard":    {"tenancy.kcp.io/v1alpha1", "Workspace", fmt.Sprintf(severity, "Scheduling", "False", "Info"), "Progressing: R: m"},
		"Workspace that is initialized":       {"tenancy.kcp.io/v1alpha1", "Workspace", `{phase: Initializing}`, "Progressing: phase Initializing"},
		"Workspace that no shard takes":       {"tenancy.kcp.io/v1alpha1", "Workspace", fmt.Sprintf(severity, "Scheduling", "False", "Error"), "Degraded: R: m"},
		"Workspace that is ready":             {"tenancy.kcp.io/v1alpha1", "Workspace", fmt.Sprintf(severity, "Ready", "True", ""), "Healthy: phase Ready"},
		"Workspace that cannot be reached":    {"tenancy.kcp.io/v1alpha1", "Workspace", `{phase: Unavailable}`, "Degraded: phase Unavailable"},
		"LogicalCluster that is switched off": {"core.kcp.io/v1alpha1", "LogicalCluster", `{phase: Inactive}`, "Suspended: phase Inactive"},
		"Shard of kcp that is nearly full":    {"core.kcp.io/v1alpha1", "Shard", fmt.Sprintf(noPhase, "False", "Warning"), "Healthy: "},
		"Shard of kcp without its etcd":       {"core.kcp.io/v1alpha1", "Shard", fmt.Sprintf(readyOnly, "False", "Error"), "Degraded: R: m"},
		"Shard of kcp that does not report":   {"core.kcp.io/v1alpha1", "Shard", fmt.Sprintf(readyOnly, "Unknown", ""), "Progressing: R: m"},
		"WorkspaceType":                       {"tenancy.kcp.io/v1alpha1", "WorkspaceType", fmt.Sprintf(noPhase, "True", ""), "Healthy: "},
		"APIBinding that is bound":            {"apis.kcp.io/v1alpha2", "APIBinding", fmt.Sprintf(severity, "Bound", "True", ""), "Healthy: phase Bound"},
		"APIBinding that is updated":          {"apis.kcp.io/v1alpha2", "APIBinding", fmt.Sprintf(severity, "Bound", "False", "Info"), "Healthy: R: m"},
		"APIBinding without its export":       {"apis.kcp.io/v1alpha2", "APIBinding", fmt.Sprintf(severity, "Binding", "False", "Error"), "Degraded: R: m"},
		"APIBinding whose export has gone":    {"apis.kcp.io/v1alpha2", "APIBinding", fmt.Sprintf(severity, "Bound", "False", "Error"), "Degraded: R: m"},
		"APIExport":                           {"apis.kcp.io/v1alpha2", "APIExport", fmt.Sprintf(noPhase, "True", ""), "Healthy: "},
		"APIExport with an invalid identity":  {"apis.kcp.io/v1alpha2", "APIExport", fmt.Sprintf(noPhase, "False", "Error"), "Degraded: R: m"},
		"APIExportEndpointSlice on its way":   {"apis.kcp.io/v1alpha1", "APIExportEndpointSlice", fmt.Sprintf(noPhase, "False", "Info"), "Progressing: R: m"},
		"migration on its way":                {"migration.kcp.io/v1alpha1", "LogicalClusterMigration", `{phase: Migrating, conditions: [{type: Ready, status: "True"}]}`, "Progressing: phase Migrating"},
		"migration that is done":              {"migration.kcp.io/v1alpha1", "LogicalClusterMigration", `{phase: Completed}`, "Healthy: phase Completed"},
		"migration that failed":               {"migration.kcp.io/v1alpha1", "LogicalClusterMigration", `{phase: Failed}`, "Degraded: phase Failed"},
		"ClusterCachedResource":               {"cache.kcp.io/v1alpha1", "ClusterCachedResource", `{phase: Ready}`, "Healthy: phase Ready"},
		"its endpoint slice":                  {"cache.kcp.io/v1alpha1", "ClusterCachedResourceEndpointSlice", fmt.Sprintf(noPhase, "True", ""), "Healthy: "},
		"PartitionSet with a bad selector":    {"topology.kcp.io/v1alpha1", "PartitionSet", fmt.Sprintf(noPhase, "False", "Error"), "Degraded: R: m"},

		"Template that is new":               {"infrastructure.kedge.faros.sh/v1alpha1", "Template", `{observedGeneration: -1}`, "Progressing: the controller has not looked at it yet"},
		"Template that is ready":             {"infrastructure.kedge.faros.sh/v1alpha1", "Template", fmt.Sprintf(readyReason, "True", "Ready", 2), "Healthy: Ready: m"},
		"Template of an older generation":    {"infrastructure.kedge.faros.sh/v1alpha1", "Template", fmt.Sprintf(readyReason, "True", "Ready", 1), "Progressing: the controller has not looked at it yet"},
		"Template that is invalid":           {"infrastructure.kedge.faros.sh/v1alpha1", "Template", fmt.Sprintf(readyReason, "False", "InvalidSpec", 2), "Degraded: InvalidSpec: m"},
		"Template that its backend refuses":  {"infrastructure.kedge.faros.sh/v1alpha1", "Template", fmt.Sprintf(readyReason, "False", "BackendNotReady", 2), "Degraded: BackendNotReady: m"},
		"Catalogue that is new":              {"infrastructure.kedge.faros.sh/v1alpha1", "Catalogue", `{observedGeneration: -1}`, "Progressing: the controller has not looked at it yet"},
		"Catalogue in use":                   {"infrastructure.kedge.faros.sh/v1alpha1", "Catalogue", fmt.Sprintf(readyReason, "False", "InUse", 2), "Progressing: InUse: m"},
		"PublishedResource":                  {"syncagent.kcp.io/v1alpha1", "PublishedResource", fmt.Sprintf(readyReason, "True", "Published", 2), "Healthy: Published: m"},
		"PublishedResource on its way":       {"syncagent.kcp.io/v1alpha1", "PublishedResource", fmt.Sprintf(readyReason, "Unknown", "Pending", 2), "Progressing: Pending: m"},
		"PublishedResource of another one's": {"syncagent.kcp.io/v1alpha1", "PublishedResource", fmt.Sprintf(readyReason, "False", "ResourceAlreadyPublished", 2), "Degraded: ResourceAlreadyPublished: m"},
		"PublishedResource without source":   {"syncagent.kcp.io/v1alpha1", "PublishedResource", fmt.Sprintf(readyReason, "False", "SourceNotFound", 2), "Degraded: SourceNotFound: m"},
	} {
		t.Run(name, func(t *testing.T) {
			object := filepath.Join(t.TempDir(), "object.yaml")
			content := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x, generation: 2}\nstatus: %s\n", tc.apiVersion, tc.kind, tc.status)
			if err := os.WriteFile(object, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(filepath.Join(os.Getenv(envPrograms), "argocd"), "admin", "settings", "resource-overrides", "health", object, "--argocd-cm-path", settings).Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			status, message, _ := strings.Cut(strings.TrimPrefix(string(out), "STATUS: "), "\nMESSAGE:")
			if got := status + ": " + strings.TrimSpace(message); strings.TrimSpace(got) != strings.TrimSpace(tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// argoSettings is a file with argocd-cm.
func argoSettings(t *testing.T) string {
	t.Helper()
	for _, u := range argoObjects(t) {
		if u.GetKind() != "ConfigMap" || u.GetName() != "argocd-cm" {
			continue
		}
		content, err := yaml.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "argocd-cm.yaml")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Fatal("there is no argocd-cm")
	return ""
}
