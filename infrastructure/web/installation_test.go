package web

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestOperatorResources shows that each kind of the operator is served or left out on purpose, and that Role of the chart, the page and the
// documentation have the same kinds.
func TestOperatorResources(t *testing.T) {
	files, err := filepath.Glob("../../config/crd/bases/operator.kcp.io_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions of the operator: %v", err)
	}
	var want []string
	for _, file := range files {
		resource := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "operator.kcp.io_"), ".yaml")
		if resource != "kubeconfigs" { // they lead to credentials
			want = append(want, resource)
		}
	}
	var served []string
	for resource := range operatorResources {
		served = append(served, resource)
	}
	list := func(file, pattern, separator string) []string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
		if found == nil {
			t.Fatalf("%s has no list", file)
		}
		return strings.Split(found[1], separator)
	}
	page, err := os.ReadFile("../portal/web/src/console/host.ts")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, found := range regexp.MustCompile(`useKind\('([a-z]+)'[,)]`).FindAllStringSubmatch(string(page), -1) {
		shown = append(shown, found[1])
	}
	slices.Sort(want)
	for where, got := range map[string][]string{
		"the server":        served,
		"the chart":         list("../../charts/atoll-installation/templates/console.yaml", `resources: \[([a-z, ]+)\]`, ", "),
		"the page":          shown,
		"the documentation": list("../../docs/console.md", `--verb=list,watch --resource=(rootshards\S+)\.operator\.kcp\.io\n`, ".operator.kcp.io,"),
	} {
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", where, got, want)
		}
	}
}
