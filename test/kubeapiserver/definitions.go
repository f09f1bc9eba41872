package kubeapiserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// Define creates the definitions in the files of a directory, and waits until their kinds are served.
func Define(t testing.TB, c client.Client, directory string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in %s: %v", directory, err)
	}
	var kinds []schema.GroupVersionKind
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, object); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, definition); err != nil {
			t.Fatal(err)
		}
		for _, version := range definition.Spec.Versions {
			if version.Served {
				kinds = append(kinds, schema.GroupVersionKind{Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.ListKind})
			}
		}
	}
	for _, kind := range kinds { // programs that need a kind end if it is not served
		shardtesting.Eventually(t, kind.String()+" to be served", func(ctx context.Context) error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			return c.List(ctx, list)
		})
	}
}

// DefineCertManager creates the definitions of cert-manager from its module.
func DefineCertManager(t testing.TB, c client.Client) {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager").Output()
	if err != nil {
		t.Fatal(err)
	}
	Define(t, c, filepath.Join(strings.TrimSpace(string(module)), "deploy", "crds"))
}
