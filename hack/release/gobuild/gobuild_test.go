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
		packages, compiled []string
		want               string
	}{
		"before the packages are known":   {nil, nil, "20s: finding the sources"},
		"while all are in the cache":      {[]string{"a", "b"}, nil, "20s: linking; all 2 packages are in the cache"},
		"the rest follows from the rate":  {[]string{"a", "b", "c", "d"}, []string{"a", "b"}, "20s: package 2 of 4, b; about 10s left"},
		"packages in the cache count":     {[]string{"a", "b", "c", "d"}, []string{"b"}, "20s: package 2 of 4, b; about 10s left"},
		"packages out of order count":     {[]string{"a", "b", "c", "d"}, []string{"b", "a"}, "20s: package 2 of 4, a; about 10s left"},
		"after the last one has begun":    {[]string{"a", "b"}, []string{"b"}, "20s: linking; the last of 2 packages is b"},
		"others than the known ones pass": {[]string{"a", "b"}, []string{"a", "x"}, "20s: package 1 of 2, x; about 10s left"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state{started: started}
			if tc.packages != nil {
				s.begin(tc.packages, started.Add(10*time.Second))
			}
			for _, pkg := range tc.compiled {
				s.compiling(pkg)
			}
			if got := s.line(started.Add(20 * time.Second)); !strings.Contains(got, tc.want) {
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
