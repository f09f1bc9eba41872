package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestFileName(t *testing.T) {
	for pkg, want := range map[string]string{
		"./cmd/kcp": "kcp", ".": "module", "go.etcd.io/etcd/etcdutl/v3": "etcdutl", "k8s.io/kubernetes/cmd/kube-apiserver": "kube-apiserver",
	} {
		if got := fileName("/path/of/module", pkg); got != want {
			t.Errorf("%s: got %q, want %q", pkg, got, want)
		}
	}
}

// TestBuild builds a program for two users, changes its source, and builds it for a third.
func TestBuild(t *testing.T) {
	module := filepath.Join(t.TempDir(), "hello")
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(module, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	built, err := directoryOf(module)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(built) })
	build := func(into string) os.FileInfo {
		t.Helper()
		if err := Build(t.Context(), module, into, "."); err != nil {
			t.Fatal(err)
		}
		linked, err := os.Stat(filepath.Join(built, "hello"))
		if err != nil {
			t.Fatal(err)
		}
		return linked
	}
	output := func(of string) string {
		t.Helper()
		text, err := exec.CommandContext(t.Context(), filepath.Join(of, "hello")).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if err := os.Mkdir(module, 0o700); err != nil {
		t.Fatal(err)
	}
	write("go.mod", "module example.com/hello\n")
	write("main.go", "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Print(1) }\n")
	first, second := t.TempDir(), t.TempDir()
	if !os.SameFile(build(first), build(second)) {
		t.Error("a program that is up to date is linked again")
	}
	write("main.go", "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Print(2) }\n")
	third := t.TempDir()
	build(third)
	if got := output(first) + output(second) + output(third); got != "112" {
		t.Errorf("the programs print %s: that of an earlier test has the source of a later one", got)
	}
}
