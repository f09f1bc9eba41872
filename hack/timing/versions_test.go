package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// builtInCI are the modules whose packages CI compiles in addition to those of the main module. They do not include api, so that api
// requires no more of its importers than it needs.
var builtInCI = []string{"hack/devcluster", "hack/devcluster/coredns", "hack/devcluster/opentofu", "test/chromium", "test/clients", "test/conformance"}

// differing are the modules that have another version in these modules, with the reason.
var differing = map[string]string{
	"github.com/hashicorp/hcl/v2": "OpenTofu replaces it",
	"github.com/zclconf/go-cty":   "OpenTofu needs a newer one than the HCL of the main module",
}

// TestVersions checks that modules that are built on the same machine use the same versions of common dependencies. With another version
// of a small module, everything that depends on it is compiled again: nearly all of Kubernetes.
func TestVersions(t *testing.T) {
	main := versions(t, "")
	for _, module := range builtInCI {
		for path, version := range versions(t, module) {
			if want, shared := main[path]; shared && want != version && differing[path] == "" {
				t.Errorf("%s requires %s %s, the main module %s: go -C %s mod edit -require=%s@%s, and go mod tidy", module, path, version, want, module, path, want)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(differing)) {
		if _, shared := main[path]; !shared {
			t.Errorf("%s is not in the main module", path)
		}
	}
}

// versions returns the versions that the go.mod of a module selects. It lists all modules with packages that are compiled.
func versions(t *testing.T, module string) map[string]string {
	t.Helper()
	file := filepath.Join("..", "..", module, "go.mod")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.Parse(file, content, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, r := range parsed.Require {
		found[r.Mod.Path] = r.Mod.Version
	}
	for _, r := range parsed.Replace {
		if _, required := found[r.Old.Path]; !required {
			continue
		}
		if strings.HasPrefix(r.New.Path, ".") {
			delete(found, r.Old.Path) // of this project
		} else {
			found[r.Old.Path] = r.New.Version
		}
	}
	return found
}
