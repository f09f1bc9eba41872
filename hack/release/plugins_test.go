package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// checkKrew runs krew to check and install the plug-ins of a release for each platform. It uses no archive other than that of the
// release.
func checkKrew(t *testing.T, directory string) {
	tools := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "-C", "../krew", "build", "-o", tools+"/", "sigs.k8s.io/krew/cmd/krew", "sigs.k8s.io/krew/cmd/validate-krew-manifest")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building krew: %v\n%s", err, out)
	}
	for _, plugin := range []string{"ws", "create-workspace"} {
		manifest := filepath.Join(directory, "plugins", plugin+".yaml")
		if out, err := exec.CommandContext(t.Context(), filepath.Join(tools, "validate-krew-manifest"), "-skip-install", "-manifest", manifest).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-arm64", "windows-amd64"} {
			archive := "kubectl-plugins-v1.2.3-" + platform + ".tar.gz"
			if text := string(read(t, manifest)); !strings.Contains(text, "uri: https://github.com/atoll-dev/atoll/releases/download/v1.2.3/"+archive+"\n") {
				t.Errorf("%s is not in\n%s", archive, text)
			}
			system, arch, _ := strings.Cut(platform, "-")
			home := t.TempDir()
			install := exec.CommandContext(t.Context(), filepath.Join(tools, "krew"), "install", "--manifest", manifest, "--archive", filepath.Join(directory, archive))
			install.Env = append(os.Environ(), "KREW_ROOT="+home, "KREW_OS="+system, "KREW_ARCH="+arch, "KREW_NO_UPGRADE_CHECK=1")
			if out, err := install.CombinedOutput(); err != nil {
				t.Errorf("%s on %s: %v\n%s", plugin, platform, err, out)
				continue
			}
			program := filepath.Join(home, "store", plugin, "v1.2.3", "kubectl-"+plugin)
			if system == "windows" {
				program += ".exe"
			}
			for _, file := range []string{program, filepath.Join(filepath.Dir(program), "LICENSE"), filepath.Join(filepath.Dir(program), "licenses.txt")} {
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s on %s: %v", plugin, platform, err)
				}
			}
			if platform == runtime.GOOS+"-"+runtime.GOARCH {
				link := filepath.Join(home, "bin", "kubectl-"+strings.ReplaceAll(plugin, "-", "_"))
				if out, err := exec.CommandContext(t.Context(), link).CombinedOutput(); err != nil || string(out) != "small\n" {
					t.Errorf("%s: %q, %v", link, out, err)
				}
			}
		}
	}
}

func TestEveryPluginIsDescribed(t *testing.T) {
	programs, err := filepath.Glob("../../cmd/kubectl-*")
	if err != nil || len(programs) == 0 {
		t.Fatalf("%d plug-ins: %v", len(programs), err)
	}
	for _, program := range programs {
		if _, found := described[filepath.Base(program)]; !found {
			t.Errorf("%s has no description for krew", filepath.Base(program))
		}
	}
	if len(described) != len(programs) {
		t.Errorf("%d plug-ins are described, %d exist", len(described), len(programs))
	}
}
