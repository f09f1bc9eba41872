// Package monitoring tests the alert rules and dashboards of config/prometheus with Prometheus itself.
package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/test/debian"
)

const config = "../../config/prometheus"

// rules writes the rules of the PrometheusRules into files that promtool reads, and returns their text.
func rules(t *testing.T, directory string) string {
	t.Helper()
	var all strings.Builder
	for name, source := range map[string]string{"operator.yaml": "alerts.yaml", "installation.yaml": "installation/alerts.yaml"} {
		text, err := os.ReadFile(filepath.Join(config, source))
		if err != nil {
			t.Fatal(err)
		}
		var rule struct {
			Spec map[string]any `json:"spec"`
		}
		if err := yaml.Unmarshal(text, &rule); err != nil {
			t.Fatal(err)
		}
		out, err := yaml.Marshal(rule.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, name), out, 0o644); err != nil {
			t.Fatal(err)
		}
		all.Write(out)
	}
	return all.String()
}

// TestAlerts runs the unit tests of testdata/alerts.yaml on the rules.
func TestAlerts(t *testing.T) {
	promtool, directory := debian.Program(t, "promtool", "prometheus"), t.TempDir()
	text := rules(t, directory)
	tests, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "tests.yaml"), tests, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "operator.yaml", "installation.yaml"}, {"test", "rules", "tests.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = directory
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(tests), `alertname="`+alert[1]+`"`) {
			t.Errorf("testdata/alerts.yaml does not test %s", alert[1])
		}
	}
}

// TestRunbooks checks that every alert has its section in the documentation.
func TestRunbooks(t *testing.T) {
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	text := rules(t, t.TempDir())
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(page), "\n## "+alert[1]+"\n") {
			t.Errorf("docs/alerts.md has no section %s", alert[1])
		}
		if !strings.Contains(text, "docs/alerts.md#"+strings.ToLower(alert[1])+"\n") {
			t.Errorf("the alert %s has no runbook_url", alert[1])
		}
	}
}

// TestScrapeConfiguration checks the scrape configuration that the operator of Prometheus creates from the monitors: the test in
// prometheusoperator writes it.
func TestScrapeConfiguration(t *testing.T) {
	promtool, file := debian.Program(t, "promtool", "prometheus"), filepath.Join(t.TempDir(), "prometheus.yaml")
	text, err := os.ReadFile("testdata/prometheus-operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configuration map[string]any
	if err := yaml.Unmarshal(text, &configuration); err != nil {
		t.Fatal(err)
	}
	for _, job := range configuration["scrape_configs"].([]any) {
		delete(job.(map[string]any), "kubernetes_sd_configs") // Debian's Prometheus has no service discovery
	}
	checked, err := yaml.Marshal(configuration)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, checked, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "config", "--syntax-only", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, job := range []string{"atoll-operator", "atoll-shard", "atoll-front-proxy", "atoll-cache-server"} { // those that rules and dashboards select
		if !strings.Contains(string(text), "\n  - target_label: job\n    replacement: "+job+"\n") {
			t.Errorf("no target has the job %s", job)
		}
	}
}
