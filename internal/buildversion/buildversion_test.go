package buildversion

import (
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	defer func(before string) { linked = before }(linked)
	linked = "v1.2.3"
	if got := Get(); got != "v1.2.3" {
		t.Errorf("got %q", got)
	}
	if got := Long(); !strings.HasSuffix(got, " (Atoll v1.2.3)") {
		t.Errorf("got %q", got)
	}
	linked = ""
	if Get() == "" {
		t.Error("a binary that was linked without a version has none")
	}
}

// The linker ignores names that do not exist.
func TestMakefileNamesTheVariable(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	type here struct{}
	if want := "-X " + reflect.TypeFor[here]().PkgPath() + ".linked=$(VERSION)"; !strings.Contains(string(text), want) {
		t.Errorf("the Makefile does not have %s", want)
	}
}

// Binaries report one level of kcp, whether the Makefile has linked it or not.
func TestLevelOfKCP(t *testing.T) {
	for file, want := range map[string]string{
		"../../Makefile":                "\nKCP_VERSION := " + KCP + "\n",
		"../../docs/coming-from-kcp.md": "+kcp-v" + KCP + "`",
	} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not contain %q, %v", file, want, err)
		}
	}
	const unlinked = "v0.0.0-master+$Format:%H$"
	modules := []*debug.Module{{Path: "k8s.io/api", Version: "v0.36.1"}, {Path: "k8s.io/component-base", Version: "v0.37.2"}}
	for name, test := range map[string]struct {
		linked  string
		modules []*debug.Module
		want    string
	}{
		"by the Makefile":      {"v1.36.1+kcp-v0.33.0", modules, "v1.36.1+kcp-v0.33.0"},
		"without the Makefile": {unlinked, modules, "v1.37.2+kcp-v" + KCP},
		"without the module":   {unlinked, modules[:1], ""},
		"another numbering":    {unlinked, []*debug.Module{{Path: "k8s.io/component-base", Version: "(devel)"}}, ""},
	} {
		if got := kubernetes(test.linked, test.modules); got != test.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
