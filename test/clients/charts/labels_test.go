package charts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// TestLabelsOfValues shows that labels and annotations of values are added once, and that they cannot replace those that Helm and selectors
// need.
func TestLabelsOfValues(t *testing.T) {
	rendered, err := render(t, operatorChart, parsed(t, `
labels: {app.kubernetes.io/managed-by: flux, release: prometheus}
podLabels: {app.kubernetes.io/name: other, app.kubernetes.io/instance: other, release: pods}
podAnnotations: {kubectl.kubernetes.io/default-container: sidecar}
metrics: {enabled: true, serviceMonitor: {enabled: true, labels: {release: monitors}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	installation, err := render(t, installationChart, parsed(t, `{externalHostname: kcp.example.com, labels: {app.kubernetes.io/managed-by: flux}}`))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := render(t, syncAgentChart, parsed(t, `
apiExportEndpointSliceName: certificates
kcpKubeconfig: kcp
labels: {app.kubernetes.io/managed-by: flux}
podLabels: {app.kubernetes.io/name: other, release: pods}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(rendered+"\n---\n"+installation+"\n---\n"+agent, "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Selector struct{ MatchLabels labels.Set }
				Template struct{ Metadata struct{ Labels labels.Set } }
			}
		}
		if err := yaml.UnmarshalStrict([]byte(document), &map[string]any{}); err != nil { // a key that is there twice
			t.Errorf("%v:\n%s", err, document)
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if got := object.Metadata.Labels["app.kubernetes.io/managed-by"]; got != "Helm" {
			t.Errorf("a %s is managed by %q", object.Kind, got)
		}
		pod := object.Spec.Template.Metadata.Labels
		switch object.Kind {
		case "Deployment":
			if !object.Spec.Selector.MatchLabels.AsSelector().Matches(pod) || pod["release"] != "pods" {
				t.Errorf("the Deployment selects %v, its pods have %v", object.Spec.Selector.MatchLabels, pod)
			}
		case "ServiceMonitor":
			if got := object.Metadata.Labels["release"]; got != "monitors" {
				t.Errorf("the label release of the ServiceMonitor is %q", got)
			}
		}
	}
}

// TestDependency renders a chart that has all as dependencies with conditions.
func TestDependency(t *testing.T) {
	umbrella := t.TempDir()
	definition := "apiVersion: v2\nname: platform\nversion: 1.0.0\ndependencies:\n"
	for _, chart := range []string{operatorChart, installationChart, syncAgentChart} {
		name := filepath.Base(chart)
		definition += "- {name: " + name + ", version: 0.1.0, condition: " + name + ".enabled}\n"
		if err := os.CopyFS(filepath.Join(umbrella, "charts", name), os.DirFS(chart)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(umbrella, "Chart.yaml"), []byte(definition), 0o600); err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t, umbrella, parsed(t, `
global: {imagePullSecrets: [registry], other: chart}
atoll-operator: {enabled: true, nodeSelector: {a: b}}
atoll-installation: {enabled: true, externalHostname: kcp.example.com}
atoll-sync-agent: {enabled: true, apiExportEndpointSliceName: certificates, kcpKubeconfig: kcp}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nkind: Deployment\n", "\nkind: RootShard\n", "\n  name: rootshards.operator.kcp.io\n", "\n  name: publishedresources.syncagent.kcp.io\n", "/sync-agent", "/operator", `- name: "registry"`} {
		if !strings.Contains(rendered, want) {
			t.Errorf("%q is not rendered", want)
		}
	}
	if rendered, err = render(t, umbrella, parsed(t, `{atoll-operator: {enabled: false}, atoll-installation: {enabled: false}, atoll-sync-agent: {enabled: false}}`)); err != nil || strings.Contains(rendered, "kind:") {
		t.Errorf("without all: %v\n%s", err, rendered)
	}
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	read := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	return read
}
