// Package charts has the tests of the charts, with the library of Helm.
package charts

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/release"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

const (
	operatorChart     = "../../../charts/atoll-operator"
	installationChart = "../../../charts/atoll-installation"
	syncAgentChart    = "../../../charts/atoll-sync-agent"
)

func load(t *testing.T, directory string) chart.Charter {
	t.Helper()
	loaded, err := loader.Load(directory)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// values reads a file of values in testdata; no name means the defaults.
func values(t *testing.T, name string) map[string]any {
	t.Helper()
	read := map[string]any{}
	if name == "" {
		return read
	}
	text, err := os.ReadFile(filepath.Join("testdata", name+".values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// render renders a chart without a server, as `helm template` does.
func render(t *testing.T, directory string, values map[string]any) (string, error) {
	t.Helper()
	return renderAs(t, "kcp", "kcp-system", directory, values)
}

func renderAs(t *testing.T, releaseName, namespace, directory string, values map[string]any) (string, error) {
	t.Helper()
	install := action.NewInstall(action.NewConfiguration())
	install.DryRunStrategy, install.ReleaseName, install.Namespace, install.DisableOpenAPIValidation = action.DryRunClient, releaseName, namespace, true
	install.KubeVersion = &common.KubeVersion{Version: "v1.37.0", Major: "1", Minor: "37"}
	rendered, err := install.Run(load(t, directory), values)
	if err != nil {
		return "", err
	}
	accessor, err := release.NewAccessor(rendered)
	if err != nil {
		t.Fatal(err)
	}
	return accessor.Manifest(), nil
}

func TestLint(t *testing.T) {
	for directory, with := range map[string]string{operatorChart: "operator", installationChart: "installation", syncAgentChart: "sync-agent"} {
		lint := action.NewLint()
		lint.Strict = true
		for _, err := range lint.Run([]string{directory}, values(t, with)).Errors {
			t.Errorf("%s: %v", directory, err)
		}
	}
}

// TestRender compares with testdata/<name>.yaml. `go test ./charts -update` writes these.
func TestRender(t *testing.T) {
	for _, tc := range []struct{ name, directory, values string }{
		{"operator-defaults", operatorChart, ""},
		{"operator", operatorChart, "operator"},
		{"kcp-operator-values", operatorChart, "kcp-operator"},
		{"installation-small", installationChart, "installation-small"},
		{"installation", installationChart, "installation"},
		{"sync-agent-small", syncAgentChart, "sync-agent-small"},
		{"sync-agent", syncAgentChart, "sync-agent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rendered, err := render(t, tc.directory, values(t, tc.values))
			if err != nil {
				t.Fatal(err)
			}
			rendered = withoutSchemas(rendered)
			file := filepath.Join("testdata", tc.name+".yaml")
			if *update {
				if err := os.WriteFile(file, []byte(rendered), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; run the test with -update to write it", err)
			}
			if diff := cmp.Diff(string(want), rendered); diff != "" {
				t.Errorf("%s differs (-want +got):\n%s", file, diff)
			}
		})
	}
}

// withoutSchemas leaves of definitions what the chart adds to them: the schemas are those of config/crd.
func withoutSchemas(manifest string) string {
	documents := strings.Split(manifest, "\n---\n")
	for i, document := range documents {
		if regexp.MustCompile(`(?m)^kind: CustomResourceDefinition$`).MatchString(document) {
			documents[i], _, _ = strings.Cut(document, "\nspec:\n")
		}
	}
	return strings.Join(documents, "\n---\n")
}

func TestFilesAreThoseOfTheConfiguration(t *testing.T) {
	for _, of := range []struct{ chart, files, source string }{
		{operatorChart, "files/crds", "config/crd/bases"},
		{operatorChart, "files", "config/rbac"},
		{syncAgentChart, "files/crds", "config/sync-agent/crd"},
		{syncAgentChart, "files", "config/sync-agent"},
	} {
		entries, err := filepath.Glob(filepath.Join(of.chart, of.files, "*.yaml"))
		if err != nil || len(entries) == 0 {
			t.Fatalf("no files in %s of %s: %v", of.files, of.chart, err)
		}
		for _, entry := range entries {
			from := filepath.Join("../../..", of.source, filepath.Base(entry))
			switch filepath.Base(entry) {
			case "alerts.yaml":
				from = "../../../config/prometheus/alerts.yaml"
			case "restore_drill_role.yaml":
				from = "../../../config/restore-drill/role.yaml"
			}
			got, err := os.ReadFile(entry)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("%s differs from %s: run make generate", entry, from)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		directory, values, want string
	}{
		"an unknown key":                    {operatorChart, "{image: {repo: x}}", "repo"},
		"a digest that is none":             {operatorChart, "{image: {digest: latest}}", "digest"},
		"replicas without leader election":  {operatorChart, "{replicaCount: 2, leaderElection: {enabled: false}}", "leaderElection"},
		"a monitor of metrics that are off": {operatorChart, "{metrics: {serviceMonitor: {enabled: true}}}", "metrics.enabled: is required"},
		"an unknown log level":              {operatorChart, "{logging: {level: warn}}", "level"},
		"a log level of zero":               {operatorChart, "{logging: {level: 0}}", "level"},
		"metrics on the port of probes":     {operatorChart, "{metrics: {enabled: true, port: 8081}}", "metrics.port"},
		"no host name":                      {installationChart, "{}", "externalHostname: is required"},
		"an unknown field of a spec":        {installationChart, "{externalHostname: a.example.org, shards: {alpha: {replica: 2}}}", "replica"},
		"a wrong type in a spec":            {installationChart, "{externalHostname: a.example.org, rootShard: {spec: {replicas: two}}}", "replicas"},
		"no store of a schedule":            {installationChart, "{externalHostname: a.example.org, backupSchedules: {nightly: {schedule: '@daily'}}}", "backupSchedules.nightly.storeRef: is required"},
		"a long name of a schedule":         {installationChart, "{externalHostname: a.example.org, backupSchedules: {a23456789012345678901234567890123456: {}}}", "maxLength: got 36, want 35"},
		"a subject without a name":          {installationChart, "{externalHostname: a.example.org, console: {subjects: [{kind: User}]}}", "missing property 'name'"},
		"no root shard":                     {installationChart, "{externalHostname: a.example.org, rootShard: null}", "rootShard"},
		"a spec that is null":               {installationChart, "{externalHostname: a.example.org, shards: {alpha: null}}", "/shards/alpha"},
		"a name that is none":               {installationChart, "{externalHostname: a.example.org, shards: {Alpha_1: {}}}", "Alpha_1"},
		"no endpoint slice":                 {syncAgentChart, "{kcpKubeconfig: kcp}", "apiExportEndpointSliceName: is required"},
		"no credentials for kcp":            {syncAgentChart, "{apiExportEndpointSliceName: a}", "kcpKubeconfig: is required"},
		"agents without leader election":    {syncAgentChart, "{apiExportEndpointSliceName: a, kcpKubeconfig: kcp, enableLeaderElection: false}", "enableLeaderElection"},
		"an unknown controller":             {syncAgentChart, "{apiExportEndpointSliceName: a, kcpKubeconfig: kcp, disabledControllers: [events]}", "disabledControllers"},
		"an agent whose name is none":       {syncAgentChart, "{apiExportEndpointSliceName: a, kcpKubeconfig: kcp, agentName: A_1}", "agentName"},
		"an override of no kubeconfig":      {syncAgentChart, "{apiExportEndpointSliceName: a, kcpKubeconfig: kcp, kubeconfigHostOverride: 'https://a'}", "kubeconfig: is required"},
		"a kubeconfig for nothing":          {installationChart, "{externalHostname: a.example.org, frontProxies: {frontproxy: null}}", "kubeconfigs.admin-kubeconfig.target"},
	} {
		t.Run(name, func(t *testing.T) {
			read := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.values), &read); err != nil {
				t.Fatal(err)
			}
			if _, err := render(t, tc.directory, read); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
