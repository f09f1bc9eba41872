package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// TestPodsAreRestricted shows that a namespace that enforces the profile restricted accepts the pods of operator, servers, etcd, sync agent and
// infrastructure provider, from manifests and from the chart.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	manifests := map[string]string{}
	for _, pattern := range []string{"../controllers/*/testdata/*.yaml", "../test/clients/charts/testdata/operator*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if filepath.Base(file) == "custom_virtualworkspace.yaml" {
				continue // programs of users may need more
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			manifests[file] = string(content)
		}
	}
	for _, folder := range []string{"default", "prometheus", "sync-agent", "sync-agent/services", "infrastructure-provider"} {
		content, err := build(t, folder).AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		manifests[folder] = string(content)
	}
	kinds := map[string]int{}
	for where, manifest := range manifests {
		for document := range strings.SplitSeq(manifest, "\n---\n") {
			var object struct {
				Kind     string
				Metadata metav1.ObjectMeta
				Spec     struct{ Template corev1.PodTemplateSpec }
			}
			if !strings.Contains(document, "\nkind: Deployment\n") && !strings.Contains(document, "\nkind: StatefulSet\n") {
				continue
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			kinds[object.Kind]++
			pod := object.Spec.Template
			if refused := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)); !refused.Allowed {
				t.Errorf("%s, %s %s: %s", where, object.Kind, object.Metadata.Name, refused.ForbiddenDetail())
			}
		}
	}
	if kinds["Deployment"] < 10 || kinds["StatefulSet"] == 0 {
		t.Errorf("the manifests have %v", kinds)
	}
}
