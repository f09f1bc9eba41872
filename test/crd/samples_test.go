package crd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// ours are the kinds that kcp-operator does not have.
var ours = map[string]bool{"BackupStore": true, "Backup": true, "BackupSchedule": true, "Restore": true, "RestoreDrill": true}

// TestSamples admits the samples of this repository and those of kcp-operator.
func TestSamples(t *testing.T) {
	definitions := load(t)
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"../../config/samples/*.yaml", "../../config/samples/full/*.yaml", "../../config/sharded/*.yaml", "../../config/samples/*/kubeconfig.yaml"} {
		more, err := filepath.Glob(pattern)
		if err != nil || len(more) == 0 {
			t.Fatalf("no samples match %s (%v)", pattern, err)
		}
		files = append(files, more...)
	}
	seen := map[string]int{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split("\n"+string(content), "\n---\n") {
			if !strings.Contains(document, "operator.kcp.io/v1alpha1") {
				continue // a Namespace, an Issuer, a kustomization
			}
			kind := manifestKind(t, document)
			if kind == "Kustomization" {
				continue // contains patches of these kinds
			}
			d, ok := definitions[kind]
			if !ok {
				t.Errorf("%s: kind %s has no definition", file, kind)
				continue
			}
			seen[kind]++
			object, errs := d.admit(t.Context(), document)
			if len(errs) > 0 {
				t.Errorf("%s: %s refused: %v", file, kind, errs.ToAggregate())
				continue
			}
			checkRoundTrip(t, object)
		}
	}
	for kind := range definitions {
		want := 2
		if ours[kind] {
			want = 1
		}
		if seen[kind] < want {
			t.Errorf("%d samples of kind %s; expected ours and the reference's, if it has the kind", seen[kind], kind)
		}
	}
}

// TestDevelopmentOverlay admits the objects that kustomize renders from the samples for a small cluster.
func TestDevelopmentOverlay(t *testing.T) {
	definitions := load(t)
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/development")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range objects.Resources() {
		d, ok := definitions[r.GetKind()]
		if !ok {
			continue
		}
		object, errs := d.admit(t.Context(), r.MustYaml())
		if len(errs) > 0 {
			t.Errorf("%s refused: %v", r.GetKind(), errs.ToAggregate())
			continue
		}
		checkRoundTrip(t, object)
	}
}
