// Package golden compares rendered objects with files. `go test PACKAGE -update` rewrites the files; review
// the difference before committing it.
package golden

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// Check compares objects with testdata/<name>.yaml, one document each.
func Check[T client.Object](t *testing.T, name string, objects ...T) {
	t.Helper()
	var rendered bytes.Buffer
	for _, object := range objects {
		document, err := yaml.Marshal(object)
		if err != nil {
			t.Fatalf("rendering %s: %v", object.GetName(), err)
		}
		rendered.WriteString("---\n")
		rendered.Write(document)
	}
	path := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, rendered.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update to write it", err)
	}
	if diff := cmp.Diff(string(want), rendered.String()); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}

// Sample reads an object from config/samples. Its UID is constant, for golden files.
func Sample[T any, P interface {
	*T
	client.Object
}](t *testing.T, name string) P {
	t.Helper()
	// Tests run in the folder of their package.
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = parent
	}
	content, err := os.ReadFile(filepath.Join(dir, "config", "samples", name))
	if err != nil {
		t.Fatal(err)
	}
	var object P = new(T)
	if err := yaml.UnmarshalStrict(content, object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	object.SetUID("00000000-0000-4000-8000-000000000001")
	return object
}
