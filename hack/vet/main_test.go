package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis/passes/printf"
)

// TestCheck checks a module with findings of several kinds: in a function that a package of the module wraps, in a test, with a build tag, and
// of this project's analyzers.
func TestCheck(t *testing.T) {
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
	if err := printf.Analyzer.Flags.Set("funcs", formatting); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.org/small\n\ngo 1.26\n",
		"say/say.go":     "package say\n\nimport \"fmt\"\n\nfunc Say(format string, args ...any) { fmt.Printf(format, args...) }\n",
		"a.go":           "package small\n\nimport \"example.org/small/say\"\n\nfunc a() { say.Say(\"%d\", \"text\") }\n",
		"a_test.go":      "package small\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Errorf(\"%d\", \"text\") }\n",
		"tagged.go":      "//go:build e2e\n\npackage small\n\nimport \"fmt\"\n\nfunc tagged() { fmt.Printf(\"%d\", \"text\") }\n",
		"typed/nil.go":   "package typed\n\ntype T struct{}\n\nfunc (*T) M() {}\n\nfunc newT() (*T, error) { return nil, nil }\n\nfunc f() error {\n\tvar i interface{ M() }\n\tvar err error\n\ti, err = newT()\n\t_ = i\n\treturn err\n}\n",
		"named/named.go": "package named\n\ntype T struct{}\n\nfunc (x T) M() {}\n",
		"good/good.go":   "package good\n\nimport \"fmt\"\n\nfunc good() { fmt.Printf(\"%d\", 1) }\n",
		"good/x_test.go": "package good_test\n",
	} {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	count, err := check(&out, directory, "e2e", "./...")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a.go:5", "a_test.go:5", "tagged.go:7", "nil.go:12", "named.go:5"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("want one finding at %s", want)
		}
	}
	if count != 5 {
		t.Errorf("got %d findings, want 5", count)
	}
	if t.Failed() {
		t.Log(out.String())
	}
	if err := os.WriteFile(filepath.Join(directory, "a.go"), []byte("package small\n\nvar x = undefined\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := check(&out, directory, "", "./..."); err == nil {
		t.Error("a module that does not compile passes")
	}
}
