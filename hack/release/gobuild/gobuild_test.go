package gobuild

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	started := time.Unix(0, 0)
	for name, tc := range map[string]struct {
		state *state
		want  string
	}{
		"before the packages are known":      {&state{}, "20s: finding the sources"},
		"while all are in the cache":         {&state{all: 10}, "20s: linking; all 10 packages are in the cache"},
		"the rest follows from the rate":     {&state{all: 10, compiled: 5, began: started.Add(10 * time.Second), current: "a/b"}, "20s: 5 of at most 10 packages compiled, at most 10s left"},
		"it names what is compiled":          {&state{all: 10, compiled: 5, current: "a/b"}, "now a/b"},
		"after the last package is compiled": {&state{all: 10, compiled: 10}, "20s: linking; all 10 packages are compiled"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.state.started = started
			if tc.state.began.IsZero() {
				tc.state.began = started
			}
			if got := tc.state.line(started.Add(20 * time.Second)); !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q in it", got, tc.want)
			}
		})
	}
}

func TestIsPackage(t *testing.T) {
	for line, want := range map[string]bool{
		"k8s.io/apimachinery/pkg/runtime": true, "internal/abi": true, "": false,
		"# example.org/small": false, "./main.go:3:2: undefined: x": false, "go: downloading k8s.io/api v0.1.0": false,
	} {
		if got := isPackage(line); got != want {
			t.Errorf("%q: got %v", line, got)
		}
	}
}

func TestRun(t *testing.T) {
	module, out := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.org/small\n\ngo 1.26\n")
	write("main.go", "package main\n\nfunc main() {}\n")
	build := Build{Directory: module, Output: out + string(filepath.Separator), Packages: []string{"."}, Environment: []string{"GOFLAGS=", "GOWORK=off"}}
	if err := build.Run(context.Background(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, "small")); err != nil {
		t.Error(err)
	}
	write("main.go", "package main\n\nfunc main() { missing() }\n")
	if err := build.Run(context.Background(), func(string) {}); err == nil || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("got %v, want the compiler's error", err)
	}
}
