package toolchain

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMissingPackages(t *testing.T) {
	for name, tc := range map[string]struct {
		absent []string
		want   []string
	}{
		"none where all files exist":             {nil, nil},
		"each once, though it has several files": {[]string{"/usr/bin/containerd", "/usr/bin/ctr"}, []string{"containerd"}},
		"all, in a fixed order":                  {[]string{"/sbin/ip", "/usr/sbin/runc"}, []string{"runc", "iproute2"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := missingPackages(func(path string) bool { return !slices.Contains(tc.absent, path) })
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCacheDir(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
	}{
		"the project's variable takes precedence": {map[string]string{"ATOLL_CACHE": "/a", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/a"},
		"then the desktop's":                      {map[string]string{"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x"},
		"then .cache in the home":                 {map[string]string{"HOME": "/h"}, "/h/.cache"},
		"no directory is an error":                {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cacheDir(func(key string) string { return tc.env[key] })
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestVersionKey(t *testing.T) {
	module := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	key := func() string {
		t.Helper()
		key, err := versionKey(module)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	write("go.mod", "module x")
	first := key()
	if !strings.HasPrefix(first, KubernetesVersion+"-") {
		t.Errorf("key %q does not name the release", first)
	}
	write("README.md", "words")
	write("hostpath/some_test.go", "package main")
	if key() != first {
		t.Error("the key changes with a file that is not built")
	}
	write("coredns/go.mod", "module y")
	if key() == first {
		t.Error("the key does not change with CoreDNS's versions")
	}
}

func TestKubernetesVersionMatchesGoMod(t *testing.T) {
	content, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "k8s.io/kubernetes "+KubernetesVersion+"\n") {
		t.Errorf("go.mod does not require k8s.io/kubernetes %s", KubernetesVersion)
	}
}
