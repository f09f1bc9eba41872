package metrics_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestAlerts checks that conditions and series in the expression of an alert exist, because it would never fire otherwise, and that its
// summary links to a section of the documentation.
func TestAlerts(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		data, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr, For    string
					Labels, Annotations map[string]string
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(strings.SplitN(read("config/prometheus/alerts.yaml"), "spec:", 2)[1]), &rule.Spec); err != nil {
		t.Fatal(err)
	}
	conditions, documentation := read("api/operator/v1alpha1/conditions.go"), read("docs/operator-etcd.md")+read("docs/operator-run.md")
	condition, series, section := regexp.MustCompile(`condition_type="(\w+)"`), regexp.MustCompile(`\b(?:kcp|atoll)_\w+`), regexp.MustCompile(`See "([^"]+)" in docs/operator-etcd.md`)
	alerts := map[string]bool{}
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			alerts[r.Alert] = true
			for _, match := range condition.FindAllStringSubmatch(r.Expr, -1) {
				if !strings.Contains(conditions, ` = "`+match[1]+`"`) {
					t.Errorf("%s: there is no condition %s", r.Alert, match[1])
				}
			}
			for _, name := range series.FindAllString(r.Expr, -1) {
				if !strings.Contains(documentation, "`"+name+"`") {
					t.Errorf("%s: the series %s is not documented", r.Alert, name)
				}
			}
			for _, match := range section.FindAllStringSubmatch(r.Annotations["summary"], -1) {
				if !strings.Contains(documentation, "\n## "+match[1]+"\n") {
					t.Errorf("%s: there is no section %q", r.Alert, match[1])
				}
			}
			if severity := r.Labels["severity"]; severity != "warning" && severity != "critical" || r.Annotations["summary"] == "" {
				t.Errorf("%s: severity %q, summary %q", r.Alert, severity, r.Annotations["summary"])
			}
		}
	}
	for _, alert := range regexp.MustCompile("`(Atoll[A-Z]\\w+)`").FindAllStringSubmatch(documentation, -1) {
		if !alerts[alert[1]] {
			t.Errorf("docs/operator-etcd.md, docs/operator-run.md: there is no alert %s", alert[1])
		}
	}
}
